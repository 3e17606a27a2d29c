"""Benchmarks that asv runs: epoch times, transferred bytes, and speeds of samplers."""

from gnnbench.host.waiting import wait_briefly

wait_briefly()  # as the command line does, before torch is imported
