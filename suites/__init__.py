"""Benchmarks that asv runs: how long an epoch takes, what it moves, and how fast samplers are."""
