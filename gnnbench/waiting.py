"""How the threads of OpenMP wait for the next loop: awake for a moment, then asleep.

To wake a thread takes longer than many loops of a mini-batch or a plan last. A thread that stays
awake, on the other hand, takes its core from whatever else the machine runs, another strategy's
threads among them; as GCC's OpenMP comes, it does so for milliseconds. OpenMP asks the environment
when it is first loaded, which torch does. Every strategy's threads wait alike.
"""

from __future__ import annotations

import os

#: Looks for work before a thread sleeps: some 0.1 ms on processors of AMD, 0.5 ms on Intel's.
SPINS = 10_000
#: By one of these a user has decided already.
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def wait_briefly() -> None:
    """Have OpenMP's threads spin :data:`SPINS` times, and not at all where there are more of them
    than cores; for this process and those it starts, if torch is not imported yet."""
    if any(variable in os.environ for variable in VARIABLES):
        return
    # Passive is what other runtimes than GCC's know, and what GCC's does with too many threads.
    os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT=str(SPINS))
