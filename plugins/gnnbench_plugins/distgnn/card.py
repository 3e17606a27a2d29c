"""Fidelity of strategy 'distgnn' to DistGNN."""

from __future__ import annotations

from gnnbench.records import Card

CARD = Card(
    implemented=(
        "cd-r: what is remote in r bins, one sent in an epoch and used r epochs later, so that "
        "rows are of earlier epochs: other maths than full-graph training "
        "(`communication.delay`, 5 as published; 0 is cd-0, which is equal to it)",
        "CPU nodes as trainers (`placement.nodes`), the host alone where a platform describes none",
    ),
    simplified=(
        "edges are cut (METIS) and rows at their far ends are sent, where DistGNN cuts vertices "
        "(Libra) and sends partial aggregates between the copies of a vertex",
        "bins are those of each peer's rows, at every layer and both ways, hence a row is r to "
        "2 r - 1 epochs old",
        "remote rows are zero until they first arrive",
    ),
    left_out=(
        "0c, which never communicates",
        "its shared-memory kernels (blocked loops, LIBXSMM): a kernel of this project or of a "
        "library computes",
        "trees of split vertices, their roots and the order in which leaves are reduced",
    ),
    validated=(
        "gnnbench reproduce hongtu-table5 hongtu-table7: epochs and full memories beside those "
        "that HongTu measured; the cluster's network is fitted on one cell of Table 7",
        "tests/systems/sancus/test_staleness.py: losses of a GCN on dense matrices with the same "
        "copies, "
        "bytes and memory",
    ),
)
