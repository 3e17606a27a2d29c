"""Tables and figures of papers beside the project's own numbers, and how well they agree."""
