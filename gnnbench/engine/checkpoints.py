"""Parameter and optimiser states along a run, so that another run can follow it closely.

Two correct runs in float32 drift apart: Adam's step is about the sign of a gradient, and where a
gradient is rounding noise so is its sign. A reference that is set back to the run's own state every
few updates sees the same maths without the drift, and still sees every wrong update but the last
of each stretch.
"""

from __future__ import annotations

from gnnbench.engine.machinery import Replicas, State
from gnnbench.engine.recorder import Recorder

#: Updates between two states.
STRETCH = 8


class Checkpoints:
    """Keeps a run's states, or sets a following run back to them."""

    def __init__(self) -> None:
        self._states: list[State] = []
        self._following = False
        self._updates = 0

    def followed(self) -> Checkpoints:
        """The same states, for a run that follows."""
        other = Checkpoints()
        other._states = self._states
        other._following = True
        return other

    def visit(self, replicas: Replicas, recorder: Recorder) -> None:
        """Called before every update; the time it takes is no part of the epoch."""
        number, within = divmod(self._updates, STRETCH)
        self._updates += 1
        if within:
            return
        with recorder.excluded():
            if self._following:
                replicas.restore(self._states[number])
            else:
                self._states.append(replicas.save())
