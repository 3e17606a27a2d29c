"""Benchmarks that asv runs: how long an epoch takes, what it moves, and how fast samplers are."""

import os

# As on the command line, before anything imports torch: threads that spin disturb each other.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
