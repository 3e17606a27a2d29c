"""Readers of graph files that others write, one for each format; each returns a ``RawGraph``."""
