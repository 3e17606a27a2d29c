"""Benchmarks that asv runs: how long an epoch takes, what it moves, and how fast samplers are."""

from gnnbench.waiting import wait_briefly

wait_briefly()  # as on the command line, before anything imports torch
