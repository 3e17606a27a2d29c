"""How OpenMP's threads wait for the next loop: they spin for a moment, then sleep.

Waking a thread takes longer than many loops of a mini-batch or a plan last. A spinning thread takes
its core from other work on the machine, including another strategy's threads. GCC's OpenMP spins
for milliseconds by default. OpenMP reads the environment when it is first loaded, which torch does.
Every strategy's threads wait alike.
"""

from __future__ import annotations

import os

#: Spins before a thread sleeps: about 0.1 ms on processors of AMD, 0.5 ms on Intel's.
SPINS = 10_000
#: Environment variables by which a user sets the policy.
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def wait_briefly() -> None:
    """Let OpenMP's threads spin :data:`SPINS` times, or not at all if they outnumber the cores.

    This holds for this process and its children, if torch is not imported yet.
    """
    if any(variable in os.environ for variable in VARIABLES):
        return
    # Other runtimes than GCC's know the passive policy; GCC's uses it with too many threads.
    os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT=str(SPINS))
