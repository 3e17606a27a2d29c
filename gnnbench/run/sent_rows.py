"""The rows that devices last sent, and by how much these rows have changed since."""

from __future__ import annotations

from torch import Tensor

#: The layer and the device index of rows.
RowsKey = tuple[int, int]


class SentRows:
    """The rows as they were last sent, ``(n, f)``, of the devices of this process.

    ``changes`` are the changes of all devices' rows, ``(1,)``, once they have been told.
    """

    def __init__(self) -> None:
        self._sent: dict[RowsKey, Tensor] = {}
        self.changes: dict[RowsKey, Tensor] = {}

    def keep(self, key: RowsKey, rows: Tensor) -> None:
        """Keep rows that cross now."""
        self._sent[key] = rows.clone()

    def measure(self, key: RowsKey, rows: Tensor) -> None:
        """Measure the relative change of rows since they were last sent, by Frobenius norms."""
        sent = self._sent[key]
        self.changes[key] = ((rows - sent).norm() / sent.norm()).reshape(1)

    def give(self, key: RowsKey) -> Tensor:
        """Return a change that was measured here, for another device."""
        return self.changes[key]

    def take(self, change: Tensor, key: RowsKey) -> None:
        """Store a change that was measured elsewhere."""
        self.changes[key] = change.reshape(1).clone()
