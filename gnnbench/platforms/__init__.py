"""Described machines. ``machine`` holds the nouns; ``describe`` reads and checks the TOML files."""
