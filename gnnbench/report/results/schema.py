"""The result file, version 1, as pydantic models: the contract of ``--json``.

JSON has no NaN. A loss or an error that is not finite is written as null. A metric that is not
finite is left out with a note in its run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    create_model,
    model_serializer,
)

from gnnbench.errors import UsageError
from gnnbench.host.files import read_text
from gnnbench.records import (
    Comparison,
    EpochWork,
    Equivalence,
    MachineKind,
    Metric,
    Mode,
    OwnError,
    Parts,
    ProgramOrigin,
    Provenance,
    RunResult,
    Stage,
    Status,
    Workload,
)
from gnnbench.report.results.output import write_standard_output, write_text

SCHEMA_VERSION: Literal[1] = 1
#: More than any comparison writes.
_LIMIT_BYTES = 1 << 30


class _Entry(BaseModel):
    """An entry with exactly the declared keys, of which ``optional`` ones may be left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    #: Keys that are written only if they have a value.
    optional: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_empty(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        entry: dict[str, object] = serialize(self)
        for name in self.optional:
            if not getattr(self, name):
                del entry[name]
        return entry


class _FiniteEntry(_Entry):
    """An entry with finite numbers."""

    model_config = ConfigDict(allow_inf_nan=False)


class _OpenEntry(BaseModel):
    """An entry with the declared keys, and any others that describe the setting."""

    model_config = ConfigDict(extra="allow", frozen=True)


class MachineEntry(_OpenEntry):
    """The machine that ran the comparison; ``gpu`` is null if there is none."""

    cpu: str
    cores: int
    memory_bytes: int
    gpu: str | None
    os: str
    python: str
    torch: str
    threads: int


class DatasetEntry(_OpenEntry):
    """A dataset.

    ``num_edges`` counts as ``edge_convention`` says; ``digest`` covers graph, data and split.
    """

    name: str
    num_vertices: int
    num_edges: int
    edge_convention: str
    num_features: int
    num_classes: int
    digest: str


def _name_key(name: str) -> str:
    return name.removeprefix("num_")


def _describe_workload(workload: object) -> object:
    """Return a workload by the keys of the file, and any other value unchanged."""
    if not isinstance(workload, Workload):
        return workload
    return {_name_key(name): getattr(workload, name) for name in WORKLOAD_NAMES}


def _restore_workload(entry: BaseModel) -> Workload:
    return Workload(**{name: value for name, value in entry if name != "layers"})


#: What a file says of a workload: its record, without what the data set decides. A field with a
#: default may be missing, as in files of earlier versions.
WORKLOAD_NAMES = ["model", "num_layers"] + [
    each.name for each in fields(Workload) if each.name not in ("model", "edge_weights")
]
_WORKLOAD_TYPES = {"num_layers": int, **get_type_hints(Workload)}
_WORKLOAD_DEFAULTS = {
    each.name: each.default for each in fields(Workload) if each.default is not MISSING
}
if TYPE_CHECKING:
    WorkloadEntry = Workload
else:
    WorkloadEntry = Annotated[
        create_model(
            "WorkloadEntry",
            __base__=_FiniteEntry,
            **{
                _name_key(name): (_WORKLOAD_TYPES[name], _WORKLOAD_DEFAULTS.get(name, ...))
                for name in WORKLOAD_NAMES
            },
        ),
        BeforeValidator(_describe_workload),
        AfterValidator(_restore_workload),
        PlainSerializer(_describe_workload),
    ]


class PlatformEntry(_Entry):
    """A platform; ``modelled`` is true as soon as one of its devices is not on the machine."""

    name: str
    description: str
    modelled: bool


class EquivalenceEntry(_Entry):
    """A check against plain training.

    ``fault`` names a difference beyond rounding, and is empty if the two are equal. The error is
    null if it is not finite. ``updates`` counts the updates that were computed once more.
    ``looked_at`` has two numbers: the updates that were inspected, with every edge of their
    mini-batches, and all updates of the run.
    """

    reference: Mode
    max_relative_loss_error: FiniteFloat | None
    equal: bool
    fault: str
    sampling: str
    updates: int = 0
    looked_at: tuple[int, int] = (0, 0)


class WorkEntry(_Entry):
    """The work of an epoch, and whether the run may win among runs of equal work.

    If epochs differ, ``updates`` and ``seeds`` are means, and ``different`` has the pairs of both.
    ``own_error`` has the groups and the factor of an error by epochs measured on the platform.
    """

    optional = ("own_error",)

    updates: int
    seeds: int
    edges: int
    devices: tuple[str, ...]
    sampling: str
    kind: MachineKind | None = None
    different: tuple[tuple[int, int], ...] = ()
    own_error: OwnError | None = None
    ranked: bool
    why_not: str


class MetricEntry(_Entry):
    """A number, its unit and its provenance.

    ``samples`` are the raw values, if several; the first ``warmup`` are in no summary. A modelled
    epoch is believed to be right within a factor of ``error_factor``, up or down.
    """

    optional = ("samples", "warmup", "error_factor")

    value: FiniteFloat
    unit: str
    provenance: Provenance
    samples: tuple[FiniteFloat, ...] = ()
    warmup: int = 0
    error_factor: FiniteFloat | None = None


class StageEntry(_Entry):
    """Busy seconds of a stage per epoch."""

    value: FiniteFloat
    provenance: Provenance


class EnvironmentEntry(_Entry):
    """The environment variables that a program was given, and the versions that it states."""

    variables: dict[str, str] = {}
    versions: dict[str, str] = {}


class ProgramEntry(_Entry):
    """A whole program: its command, or the module and name of its class."""

    optional = ("command", "module")

    name: str
    command: tuple[str, ...] | None = None
    module: str | None = None
    environment: EnvironmentEntry


class RowEntry(_Entry):
    """A strategy, one with a swapped part, or a whole program, in one repeat.

    A program has no ``parts``, and only a program has ``program``.
    """

    optional = ("program",)

    strategy: str
    label: str
    mode: Mode
    program: ProgramEntry | None = None
    parts: Parts | None
    repeat: int


class RunEntry(RowEntry):
    """One run of a row."""

    status: Status
    reason: str
    loss: tuple[FiniteFloat | None, ...]
    accuracy: dict[Literal["train", "val", "test"], FiniteFloat]
    equivalence: EquivalenceEntry | None
    work: WorkEntry | None
    metrics: dict[str, MetricEntry]
    stages: dict[Stage, StageEntry]
    notes: tuple[str, ...]


class ResultDocument(_Entry):
    """A result file as a whole."""

    schema_version: Literal[1] = Field(alias="schema")
    created: str
    gnnbench: str
    command: tuple[str, ...]
    machine: MachineEntry
    dataset: DatasetEntry
    workload: WorkloadEntry
    platform: PlatformEntry
    runs: tuple[RunEntry, ...]
    noise: str = ""
    interrupted: str = ""


def to_document(comparison: Comparison) -> ResultDocument:
    """Return the comparison as a result file, without timelines (``--trace`` keeps those)."""
    # Imported here because it imports torch, which reading a result file does without.
    from gnnbench.comparison.ranking import group_runs

    why_not = {
        (row.mode, row.label): row.why_not for group in group_runs(comparison) for row in group.rows
    }
    return ResultDocument(
        schema=SCHEMA_VERSION,
        created=comparison.created,
        gnnbench=comparison.gnnbench,
        command=comparison.command,
        machine=MachineEntry.model_validate(dict(comparison.machine)),
        dataset=DatasetEntry.model_validate(dict(comparison.dataset)),
        workload=comparison.workload,
        platform=PlatformEntry(
            name=comparison.platform,
            description=comparison.platform_description,
            modelled=comparison.modelled,
        ),
        runs=tuple(_run(run, why_not[run.mode, run.label]) for run in comparison.runs),
        noise=comparison.noise,
        interrupted=comparison.interrupted,
    )


def describe_runs(runs: Sequence[RunResult]) -> list[JsonValue]:
    """Return planned runs in the form in which a comparison's file has trained ones."""
    return [_run(run, "it was planned").model_dump(mode="json") for run in runs]


def _run(run: RunResult, why_not: str) -> RunEntry:
    left_out = sorted(name for name, metric in run.metrics.items() if not _is_finite(metric))
    notes = tuple(f"{name} is left out: it is not a finite number" for name in left_out)
    accuracy = {name: v for name, v in run.accuracy.items() if math.isfinite(v)}
    return RunEntry.model_validate(
        {
            "strategy": run.strategy,
            "label": run.label,
            "mode": run.mode,
            "program": _program(run.program),
            "parts": run.parts,
            "repeat": run.repeat,
            "status": run.status,
            "reason": run.reason,
            "loss": [_finite(value) for value in run.loss],
            "accuracy": accuracy,
            "equivalence": _equivalence(run.equivalence),
            "work": _work(run.work, why_not),
            "metrics": {
                name: asdict(metric) for name, metric in run.metrics.items() if _is_finite(metric)
            },
            "stages": {
                stage: {"value": metric.value, "provenance": metric.provenance}
                for stage, metric in run.stages.items()
                if _is_finite(metric)
            },
            "notes": (*run.notes, *(f"changed {name}" for name in run.left), *notes),
        }
    )


def _program(program: ProgramOrigin | None) -> ProgramEntry | None:
    if program is None:
        return None
    return ProgramEntry(
        name=program.name,
        command=program.command or None,
        module=program.module or None,
        environment=EnvironmentEntry(
            variables=dict(program.variables), versions=dict(program.versions)
        ),
    )


def _equivalence(equivalence: Equivalence | None) -> EquivalenceEntry | None:
    if equivalence is None:
        return None
    error = _finite(equivalence.max_relative_loss_error)
    said = {**asdict(equivalence), "max_relative_loss_error": error}
    return EquivalenceEntry(**said, equal=equivalence.holds)


def _work(work: EpochWork | None, why_not: str) -> WorkEntry | None:
    if work is None:
        return None
    return WorkEntry(**asdict(work), ranked=not why_not, why_not=why_not)


def _is_finite(metric: Metric) -> bool:
    return all(math.isfinite(value) for value in (metric.value, *metric.samples))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def dump_json(document: ResultDocument) -> str:
    """Return the document as strict JSON text, ASCII only, with a newline at its end."""
    content = document.model_dump(mode="json", by_alias=True)
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def write_json(document: ResultDocument, path: Path | Literal["-"]) -> None:
    """Write the result file, whole or not at all; ``"-"`` is standard output.

    Raises ``UsageError`` when ``path`` is a folder or cannot be written.
    """
    text = dump_json(document)
    if path == "-":
        write_standard_output(text)
    else:
        write_text(path, text)


def read_json(path: Path) -> ResultDocument:
    """Read and check a result file; ``UsageError`` names its fault."""
    return parse_json(path, read_text(path, _LIMIT_BYTES))


def parse_json(path: Path, text: str) -> ResultDocument:
    """Check the text of a result file; ``UsageError`` names its fault."""
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise UsageError(f"{path} is no result file: it nests too deep; write it again.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not strict JSON ({error}); write it again.") from error
    try:
        return ResultDocument.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the top level"
        raise UsageError(
            f"{path} is not a gnnbench result file of schema {SCHEMA_VERSION}: "
            f"at {where}, {first['msg'].lower()}."
        ) from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
