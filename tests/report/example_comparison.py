"""A comparison made by hand, with a run of every status; its figures are invented."""

from dataclasses import replace
from statistics import median

from gnnbench.records import (
    AggregateWork,
    Comparison,
    CopyWork,
    EpochWork,
    Equivalence,
    Metric,
    Mode,
    Parts,
    Provenance,
    RunResult,
    Scheduled,
    Span,
    Stage,
    Workload,
)

FULL_GRAPH = "every neighbour"
UNIFORM = "uniform without replacement, fan-outs 25, 10"
FAULT = "the loss of epoch 0, round 0 is off by 1e-02, and rounding explains 1e-05"


def make_span(number: int, stage: Stage, start_s: float, end_s: float, *on: str) -> Scheduled:
    span = Span(
        id=number,
        stage=stage,
        label=f"{stage} {number}",
        place=on[0],
        resources=on,
        work=AggregateWork(10 * number) if stage == "aggregate" else CopyWork(1000 * number),
        after=(number - 1,) if number else (),
        epoch=2,
        round=number // 3,
        layer=number % 2,
        seconds=end_s - start_s,
        wall_start_s=0.0,
        wall_s=0.001,
    )
    return Scheduled(span, start_s, end_s)


def make_run(
    label: str,
    mode: Mode = "full-graph",
    epoch_s: tuple[float, ...] = (0.118,),
    provenance: Provenance = "modelled",
    fault: str | None = "",
    work: EpochWork | None = None,
    amount: float = 1.0,
) -> RunResult:
    """A finished run; a ``fault`` of None was never looked for. ``amount`` is how many times as
    many bytes it moves, and as many seconds it takes here, as any other run."""
    strategy, _, swapped = label.partition("·")
    middle = median(epoch_s)
    error = 1e-2 if fault else 3e-7
    sampling = FULL_GRAPH if mode == "full-graph" else UNIFORM
    metrics = {
        "epoch_time": Metric(middle, "s", provenance, epoch_s),
        "wall_time": Metric(2.31 * amount, "s", "measured", (2.3, 2.32)),
        "throughput_edges": Metric(1e9 / middle, "edges/s", provenance),
        "host_to_device_bytes": Metric(1.0e9 * amount, "B", provenance),
        "device_to_host_bytes": Metric(0.21e9 * amount, "B", provenance),
        "device_to_device_bytes": Metric(0.32e9 * amount, "B", provenance),
        "reused_bytes": Metric(0.88e9 * amount, "B", provenance),
        "peak_device_bytes": Metric(0.61e9 * amount, "B", provenance),
        "preprocessing_time": Metric(0.5 * amount, "s", "measured"),
        "harness_overhead": Metric(0.008 * amount, "1", "measured"),
    }
    shares: dict[Stage, float] = {
        "load": 0.2, "transfer": 0.5, "aggregate": 0.3, "update": 0.2, "synchronize": 0.001,
    }  # fmt: skip
    return RunResult(
        strategy=strategy,
        label=label,
        mode=mode,
        parts=Parts("two-level", "per-device", swapped or "deduplicated", "host", "torch"),
        repeat=0,
        status="done",
        loss=(1.5, 0.8, 0.4123 * amount),
        accuracy={"train": 0.98, "val": 0.94, "test": 0.9512 / amount**0.1},
        equivalence=None if fault is None else Equivalence(mode, error, fault, sampling),
        work=work or EpochWork(1, 8621, 10**9, ("gpu0",), sampling),
        metrics=metrics,
        stages={stage: Metric(middle * share, "s", provenance) for stage, share in shares.items()},
        timeline=(
            make_span(0, "transfer", 0.0, 0.01, "pcie0"),
            make_span(1, "aggregate", 0.01, 0.02, "gpu0"),
            make_span(2, "transfer", 0.01, 0.03, "pcie0", "pcie1"),
        ),
        notes=("4 partitions of 8 chunks",) if strategy == "hongtu" else (),
    )


def do_work(label, updates=3, seeds=100, sampling="uniform without replacement, fan-outs 5", **its):
    """A mini-batch run of such work in an epoch."""
    work = EpochWork(updates, seeds, 1000, its.pop("devices", ("gpu0",)), sampling)
    return make_run(label, "mini-batch", work=work, **its)


def make_failure(label: str, status: str, reason: str, mode: Mode = "full-graph") -> RunResult:
    run = make_run(label, mode)
    return RunResult(run.strategy, label, mode, run.parts, 0, status, reason)  # type: ignore[arg-type]


def make_comparison(*runs: RunResult, modelled: bool = True) -> Comparison:
    return Comparison(
        created="2025-01-02T03:04:05+00:00",
        gnnbench="0.1.0",
        command=("gnnbench", "compare", "--plugins", "hyscale,hongtu"),
        machine={
            "cpu": "Example CPU", "cores": 2, "memory_bytes": 8 * 10**9, "gpu": None,
            "os": "Linux", "python": "3.11.0", "torch": "2.13.0", "threads": 2,
        },
        dataset={
            "name": "coauthor_physics", "num_vertices": 34493, "num_edges": 495924,
            "edge_convention": "both directions", "num_features": 8415, "num_classes": 5,
            "digest": "0123456789abcdef", "origin": "a file", "notes": ("split 25/50/25 drawn",),
        },
        workload=Workload("gcn", (8415, 256, 5), 3, 1024, (25, 10), 0),
        model_title="GCN",
        platform="epyc7763x2-4xa5000",
        platform_description="two EPYC 7763 and four RTX A5000",
        modelled=modelled,
        runs=runs,
    )  # fmt: skip


def every_status() -> Comparison:
    """Two done full-graph rows, a failure of every kind, and two mini-batch rows."""
    return make_comparison(
        make_run("hongtu", epoch_s=(0.118,) * 3),
        make_run("hongtu·vanilla", epoch_s=(0.214, 0.2185, 0.207), amount=1.3),
        make_failure(
            "dgl",
            "out-of-memory",
            "gpu0 is out of memory: 1,161,044,380 bytes are needed for features of layer 0, 12 of "
            "100,000 are in use; use smaller units.",
        ),
        make_failure("pyg", "skipped", "torch-sparse is not installed; install it."),
        make_failure("broken", "error", "ValueError: it broke"),
        make_run("hyscale", "mini-batch", (0.05, 0.06, 0.055), fault=FAULT, amount=1.7),
        replace(
            make_run("reference", "mini-batch", (0.5,), fault=None, amount=2.2),
            notes=("plain torch",),
        ),
    )


def shared_notes():
    """Rows that say the same, partly; ``a`` in both groups."""
    said = {"a": ("cut in 4", "of a alone"), "b": ("cut in 4",), "c": ("of c alone", "cut in 4")}
    runs = [replace(make_run(label), notes=notes) for label, notes in said.items()]
    mini_batch = replace(make_run("a", "mini-batch"), notes=("of a alone",))
    return make_comparison(*runs, replace(runs[0], repeat=1), mini_batch)
