"""The ranges of a job's numbers, for the command line and for the files of sweeps."""

from __future__ import annotations

#: The largest whole number that arrays can count.
LARGEST = 2**63 - 1
#: The largest fan-out: ids of vertices have 32 bits, and so no vertex has more neighbours.
MOST_NEIGHBOURS = 2**31 - 1
#: More threads than any one machine has cores.
MOST_THREADS = 1024
#: Beyond this rate Adam's first step is no number in float32.
MOST_LEARNING_RATE = 1e6
