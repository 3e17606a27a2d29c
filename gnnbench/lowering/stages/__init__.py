"""Stages of an epoch; a lowering holds them and calls them in the order of the epoch."""
