"""The result file: its schema, and writing and reading it."""
