"""The records of a run, from graph to result, that all rooms share.

Records are frozen and slotted. Records made for every piece of work are named tuples, which are
built in a third of the time of a frozen dataclass. Arrays inside records are never written to after
construction. Vertex ids are ``int64`` when global and ``int32`` when local to a block. The papers'
symbols stand beside the corresponding fields.
"""

from gnnbench.records.data import (
    BoolArray,
    Dataset,
    FeatureScaling,
    FloatArray,
    Graph,
    IndexArray,
    IntArray,
    Mode,
    Workload,
    begin_digest,
)
from gnnbench.records.ledger import LedgerEntry, MachineKind
from gnnbench.records.result import (
    Comparison,
    EpochWork,
    Equivalence,
    Metric,
    Provenance,
    RunResult,
    Status,
)
from gnnbench.records.strategy import PART_KINDS, Ablation, Card, PartKind, Parts, Strategy
from gnnbench.records.table import Cell, Contradiction, Table, TableRow
from gnnbench.records.trace import (
    BYTE_KINDS,
    STAGES,
    ByteKind,
    EpochTrace,
    Scheduled,
    Span,
    Stage,
    StageTimes,
    Trace,
)
from gnnbench.records.traffic import BufferRows, Fetch, PeerFetch, RoundTraffic
from gnnbench.records.work import (
    BatchProfile,
    Block,
    BlockSize,
    Form,
    HostThreads,
    Loading,
    ReadOrder,
    Round,
    Shard,
    Share,
    Unit,
    Work,
)

__all__ = [
    "BYTE_KINDS",
    "PART_KINDS",
    "STAGES",
    "Ablation",
    "BatchProfile",
    "Block",
    "BlockSize",
    "BoolArray",
    "BufferRows",
    "ByteKind",
    "Card",
    "Cell",
    "Comparison",
    "Contradiction",
    "Dataset",
    "EpochTrace",
    "EpochWork",
    "Equivalence",
    "FeatureScaling",
    "Fetch",
    "FloatArray",
    "Form",
    "Graph",
    "HostThreads",
    "IndexArray",
    "IntArray",
    "LedgerEntry",
    "Loading",
    "MachineKind",
    "Metric",
    "Mode",
    "PartKind",
    "Parts",
    "PeerFetch",
    "Provenance",
    "ReadOrder",
    "Round",
    "RoundTraffic",
    "RunResult",
    "Scheduled",
    "Shard",
    "Share",
    "Span",
    "Stage",
    "StageTimes",
    "Status",
    "Strategy",
    "Table",
    "TableRow",
    "Trace",
    "Unit",
    "Work",
    "Workload",
    "begin_digest",
]
