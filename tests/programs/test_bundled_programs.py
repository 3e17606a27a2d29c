"""The libraries' own programs: options, processes, and why strategies differ in time."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from gnnbench import datasets
from gnnbench.comparison import Request, compare, frame
from gnnbench.errors import UsageError
from gnnbench.machines.describe import LOCAL, load_platform
from gnnbench.plugins import Registry
from gnnbench.programs import beside, spread
from gnnbench.programs.files import read_program
from gnnbench.programs.reasons import REST, explain
from gnnbench.programs.rows import ProgramRows, find_program
from gnnbench.records import CommandProgram, Metric, Parts, RunResult, Stage, Workload
from gnnbench_plugins.reference.plain_loop import Trainer

GRAPH = "sbm:vertices=120,edges=500,features=8,classes=3"
EPOCHS = 4
STAND_IN = Path(__file__).parent / "stand_in"

pytestmark = pytest.mark.usefixtures("one_thread")


def train(
    registry: Registry,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    graph: str = GRAPH,
    model: str = "sage",
) -> RunResult:
    """Train a program on one mini-batch an epoch, of all seeds with all their neighbours."""
    monkeypatch.setattr(frame, "ENOUGH_SAMPLES", EPOCHS + 8)
    program = find_program(name, registry)
    assert isinstance(program, CommandProgram)
    program = dataclasses.replace(program, environment={"PYTHONPATH": str(STAND_IN)})
    data = datasets.load(graph)
    dims = (data.num_features, 6, data.num_classes)
    workload = Workload(model, dims, EPOCHS, 32, (0, 0), seed=3, threads=1)
    request = Request(
        (),
        data,
        workload,
        load_platform(LOCAL),
        modes=("mini-batch",),
        programs=ProgramRows((program,), registry),
    )
    (found,) = compare(request, registry).runs
    assert found.status == "done", found.reason
    return found


@pytest.mark.parametrize(
    ("library", "other"),
    [
        ("dgl", "dgl-ddp"),
        pytest.param("dgl", "distdgl-loop", marks=pytest.mark.long),
        pytest.param("pyg", "pyg-ddp", marks=pytest.mark.long),
    ],
)
def test_two_processes_train_as_one_does(
    registry: Registry, library: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They average the gradients of their halves, and each draws the neighbours of its own."""
    one = train(registry, f"{library}-loop:workers=1,stages=1", monkeypatch)
    two = train(registry, other, monkeypatch)
    assert two.loss == pytest.approx(one.loss, rel=1e-5)
    assert one.loss[-1] < 0.9 * one.loss[0]
    for found in (one, two):
        assert found.work is not None
        assert (found.work.updates, found.work.seeds) == (1, 30)
        assert found.spread_seeds == (spread.SEEDS if library == "dgl" else 0)
    assert two.work is not None
    assert ", in 2 parts of a mini-batch" in two.work.sampling
    stages = {stage: metric.value for stage, metric in one.stages.items()}
    assert set(stages) == {"sample", "update", "aggregate"}
    assert 0.0 < sum(stages.values()) < 1.2 * one.metrics["epoch_time"].value
    assert one.program is not None
    assert one.program.name == f"{library}-loop:workers=1,stages=1"
    assert one.program.command[-4:] == ("--workers", "1", "--stages", "1")


@pytest.mark.parametrize("program", ["dgl-ddp", pytest.param("pyg-ddp", marks=pytest.mark.long)])
def test_processes_with_unequal_shares_train_on_every_seed_once(
    registry: Registry, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DGL's GraphConv refuses a mini-batch in which a seed occurs twice."""
    graph = "sbm:vertices=124,edges=500,features=8,classes=3"
    found = train(registry, program, monkeypatch, graph, "gcn")
    assert found.work is not None
    assert (found.work.updates, found.work.seeds) == (1, 31)


def test_options_of_a_program_are_named_and_checked(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (
        'name = "mine"\ncommand = ["run", "{depth}"]\nmodes = ["full-graph"]\nmodels = ["gcn"]\n'
        "[options]\n"
    )
    file.write_text(f"{text}depth = 2\n")
    assert read_program(file).fill() == ("run", "2")
    chosen = find_program(f"{file}:depth=5", registry)
    assert isinstance(chosen, CommandProgram)
    assert (chosen.name, chosen.fill()) == ("mine:depth=5", ("run", "5"))
    for wrong, sentence in (
        ("dgl-loop:worker=1", "has no option 'worker'; its options are workers, stages"),
        ("dgl-loop:workers=-1", "option workers of program 'dgl-loop' is '-1'"),
        ("dgl-loop:workers=", "give a whole number"),
    ):
        with pytest.raises(UsageError, match=sentence):
            find_program(wrong, registry)
    with pytest.raises(UsageError, match="no row is of model or mode 'gnc'"):
        beside.measure(registry, [GRAPH], ["gnc"])
    for options in ("depth = 2\nwidth = 3\n", "task = 1\n"):
        file.write_text(text + options)
        with pytest.raises(UsageError, match="has no effect"):
            read_program(file)
    plain = dataclasses.replace(registry.program("dgl-loop"), options={})
    with pytest.raises(UsageError, match="has no options"):
        find_program("mine:a=1", dataclasses.replace(registry, programs={"mine": plain}))


def make_run(
    label: str, seconds: float, stages: dict[Stage, float], parts: Parts | None
) -> RunResult:
    return RunResult(
        strategy=label,
        label=label,
        mode="mini-batch",
        repeat=0,
        status="done",
        metrics={"epoch_time": Metric(seconds, "s", "measured")},
        stages={stage: Metric(value, "s", "measured") for stage, value in stages.items()},
        parts=parts,
    )


@pytest.mark.parametrize(
    ("seconds", "stages", "sentence"),
    [
        # Faster here: sampling is 5 s shorter, and aggregation 1 s longer.
        (
            5.0,
            {"sample": 1.0, "load": 1.0, "aggregate": 3.0},
            "sampling and loading (sampler mine) takes 2.00 s, and 7.00 s in loop",
        ),
        # Faster here: sampling is 4 s shorter, and aggregation 5 s longer as stages overlap.
        (
            9.0,
            {"sample": 3.0, "aggregate": 7.0},
            "sampling and loading (sampler mine) takes 3.00 s, and 7.00 s in loop",
        ),
        # Slower here: aggregation is 9 s longer, and sampling 5 s shorter.
        (
            14.0,
            {"sample": 2.0, "aggregate": 11.0},
            "AGGREGATE (kernel fast) takes 11.0 s, and 2.00 s in loop",
        ),
        # Slower here by what no stage has.
        (13.0, {"sample": 7.0, "aggregate": 2.0}, f"{REST} takes 4.00 s, and 1.00 s in loop"),
    ],
)
def test_the_stage_that_differs_most_is_the_reason(
    seconds: float, stages: dict[Stage, float], sentence: str
) -> None:
    parts = Parts("mine", "single", "vanilla", "host", "fast")
    ours, theirs = make_run("dgl", seconds, stages, parts), make_run("loop", 10.0, {}, None)
    assert explain(ours, theirs, {"sample": 7.0, "aggregate": 2.0}) == sentence


def test_what_counting_took_is_subtracted_from_its_own_epoch_alone() -> None:
    trainer = Trainer.__new__(Trainer)
    trainer._data, trainer._awaited_s = SimpleNamespace(full=False), 0.5
    trainer._updates = SimpleNamespace(seconds=2.0, lost_s=1.0)
    assert trainer._take_stages(10.0) == {"sample": 0.5, "update": 2.0, "aggregate": 6.5}
    trainer._updates.seconds = 3.0
    assert trainer._take_stages(10.0) == {"sample": 0.0, "update": 3.0, "aggregate": 7.0}
