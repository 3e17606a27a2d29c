"""Kernels with one fault each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gnnbench.errors import MissingDependencyError
from gnnbench.parts import Adjacency, LayerShape, Scaling, Setting, option
from gnnbench.records import Block, BlockSize, IntArray
from gnnbench_plugins.reference.kernel import TorchAdjacency, TorchKernel
from suites.faults.fault import (
    ALONE,
    BATCHES,
    CHUNKS,
    EVERYWHERE,
    SHARDS,
    Fault,
    Row,
    make_part,
)

#: ``edge-dropped`` drops one edge in this many.
SPARSELY = 10_000

# --------------------------------------------------------------------------- edges


def drop_edges(block: Block, dropped: IntArray) -> Block:
    kept = np.ones(block.num_edges, dtype=bool)
    kept[dropped] = False
    rows = np.repeat(np.arange(block.num_dst), np.diff(block.indptr))[kept]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=block.num_dst))))
    return replace(block, indptr=indptr.astype(np.int64), indices=block.indices[kept])


def drop_one_in_many(block: Block) -> Block:
    step = min(SPARSELY, max(block.num_edges, 1))
    return drop_edges(block, np.arange(step // 2, block.num_edges, step))


def drop_last_of_each(block: Block) -> Block:
    several = np.flatnonzero(np.diff(block.indptr) > 1)[::4]
    return drop_edges(block, block.indptr[several + 1] - 1)


def repeat_one(block: Block) -> Block:
    if not block.num_edges:
        return block
    place = block.num_edges // 2
    row = int(np.searchsorted(block.indptr, place, side="right")) - 1
    indptr = block.indptr.copy()
    indptr[row + 1 :] += 1
    return replace(
        block, indptr=indptr, indices=np.insert(block.indices, place, block.indices[place])
    )


def misread_one(block: Block) -> Block:
    indices = block.indices.copy()
    if len(indices) and block.num_src > 1:
        place = len(indices) // 3
        indices[place] = (indices[place] + 1) % block.num_src
    return replace(block, indices=indices)


# --------------------------------------------------------------------------- adjacencies


class PlainAdjacency(TorchAdjacency):
    """An adjacency with hooks ``before`` and ``after`` every product, which a fault may replace.

    All its products are ``sum`` and ``sum_transposed``.
    """

    sum_scaled = Adjacency.sum_scaled
    own_plus_sum = Adjacency.own_plus_sum
    own_and_mean = Adjacency.own_and_mean
    own_and_mean_transposed = Adjacency.own_and_mean_transposed

    def before(self, rows: Tensor) -> Tensor:
        return rows

    def after(self, out: Tensor) -> Tensor:
        return out

    def sum(self, h: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.after(super().sum(self.before(h), weight))

    def sum_edges(self, messages: Tensor) -> Tensor:
        return self.after(super().sum_edges(self.before(messages)))


class OtherWeights(PlainAdjacency):
    """An adjacency with edge values changed by ``weigh`` in backward passes."""

    def weigh(self, values: Tensor) -> Tensor:
        return values

    def transpose(self, weight: Tensor | None = None) -> Tensor:
        return super().transpose(self.weigh(self._ones if weight is None else weight))


class StaleRows(PlainAdjacency):
    """An adjacency that returns one sum in 50 from the previous update."""

    def __init__(self, block: Block, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(block, dtype, device)
        self._before: dict[tuple[int, ...], Tensor] = {}

    def after(self, out: Tensor) -> Tensor:
        before = self._before.get(tuple(out.shape))
        self._before[tuple(out.shape)] = out.detach().clone()
        if before is None:
            return out
        return torch.where((torch.arange(len(out)) % 50 == 7).unsqueeze(1), before, out)


class OtherNorms(PlainAdjacency):
    """An adjacency with the scaling of GCN's sums changed by ``swap``."""

    def swap(self, scaling: Scaling) -> Scaling:
        return scaling

    def sum_scaled(self, h: Tensor, scaling: Scaling) -> Tensor:
        return super().sum_scaled(h, self.swap(scaling))

    def sum_scaled_transposed(
        self, g: Tensor, scaling: Scaling, into: Tensor | None = None
    ) -> Tensor:
        return super().sum_scaled_transposed(g, self.swap(scaling), into)


def lessen(_: OtherNorms, scaling: Scaling) -> Scaling:
    src, dst = ((part.pow(-2) - 1).clamp(min=1).rsqrt() for part in (scaling.src, scaling.dst))
    return Scaling(src=src, dst=dst, own=dst * dst)


def count_in_block(adjacency: OtherNorms, scaling: Scaling) -> Scaling:
    dst = (adjacency.in_degrees + 1).rsqrt()
    return Scaling(src=scaling.src, dst=dst, own=dst * dst)


def zero(out: Tensor, places: Any, value: float = 0.0) -> Tensor:
    """Return ``out`` with another value at some places, if it has any rows."""
    out = out.clone()
    if len(out):
        out[places] = value
    return out


def lose_own_row(self: PlainAdjacency, h: Tensor) -> Tensor:
    return zero(PlainAdjacency.own_rows(self, h), self.block.num_dst // 2)


def lose_attention(self: PlainAdjacency, scores: Tensor) -> Tensor:
    return zero(PlainAdjacency.edge_softmax(self, scores), slice(500, None, 1000))


def spoil_means_of_100(self: TorchAdjacency, h: Tensor) -> Tensor:
    return TorchAdjacency.mean(self, h) + (torch.nan if h.shape[1] == 100 else 0.0)


def round_to(dtype: torch.dtype) -> Callable[[Any, Tensor], Tensor]:
    return lambda _, rows: rows.to(dtype).to(rows.dtype)


# --------------------------------------------------------------------------- kernels


class _Altered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, alter: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.alter = alter
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.alter(g), None


def alter_gradient(rows: Tensor, alter: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``rows`` with the gradient changed by ``alter``."""
    altered: Tensor = _Altered.apply(rows, alter)  # type: ignore[no-untyped-call]
    return altered


@dataclass
class FaultyKernel(TorchKernel):
    """The plain kernel in steps, each of which a fault can replace.

    The steps are the edges, the adjacency, and UPDATE: ``a W``, the bias, ReLU, and the end of the
    last layer.
    """

    made: ClassVar[type[TorchAdjacency]] = PlainAdjacency
    #: Results that a kernel keeps.
    kept: ClassVar[Any] = None
    _seen: dict[tuple[int, ...], list[Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _calls: int = field(default=0, init=False, repr=False, compare=False)

    def alter_block(self, block: Block) -> Block:
        return block

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> TorchAdjacency:
        return self.made(self.alter_block(block), dtype, device)

    def linear(
        self, a: Tensor, weight: Tensor | None, bias: Tensor, *, relu: bool, masked: bool = False
    ) -> Tensor:
        out = self.add(a if weight is None else self.times(a, weight), bias, last=not relu)
        return self.bend(out) if relu else self.end(out)

    def times(self, a: Tensor, weight: Tensor) -> Tensor:
        return a @ weight

    def add(self, out: Tensor, bias: Tensor, *, last: bool) -> Tensor:
        return out + bias

    def bend(self, out: Tensor) -> Tensor:
        return out.relu()

    def end(self, out: Tensor) -> Tensor:
        return out

    def is_its_turn(self) -> bool:
        """Return whether this is one call in four, as if by one of four devices."""
        self._calls += 1
        return self._calls % 4 == 2


def bend_by_the_next(_: FaultyKernel, out: Tensor) -> Tensor:
    mask = (out.detach() > 0).to(out.dtype)
    # The value is ReLU's, but the gradient passes through the mask of the next row.
    passed = out * mask.roll(1, 0)
    return passed + (out.detach().relu() - passed.detach())


def copy_a_row(_: FaultyKernel, out: Tensor) -> Tensor:
    source = torch.arange(len(out))
    source[len(out) // 2] = max(len(out) // 2 - 1, 0)
    return out.index_select(0, source)


def count_twice(kernel: FaultyKernel, out: Tensor) -> Tensor:
    return alter_gradient(out, lambda g: 2 * g) if kernel.is_its_turn() else out


def count_as_the_first(kernel: FaultyKernel, out: Tensor) -> Tensor:
    kernel._calls = kernel._calls or len(out)
    share = kernel._calls / max(len(out), 1)
    return alter_gradient(out, lambda g: share * g)


def times_the_earlier(kernel: FaultyKernel, a: Tensor, weight: Tensor) -> Tensor:
    seen = kernel._seen.setdefault(tuple(weight.shape), [weight.detach().clone()])
    if not torch.equal(seen[-1], weight.detach()):
        seen.append(weight.detach().clone())
        del seen[:-2]
    if kernel.is_its_turn() and len(seen) > 1:
        return a @ (weight + (seen[0] - weight.detach()))
    return a @ weight


def kernel(name: str, summary: str, hosts: tuple[Row, ...] = EVERYWHERE, **members: Any) -> Fault:
    """Return a fault of a kernel.

    ``adjacency`` are members of its adjacency, with the base ``of``; other members are the
    kernel's.
    """
    adjacency, of = members.pop("adjacency", {}), members.pop("of", PlainAdjacency)
    of = type(f"Adjacency of {name}", (of,), adjacency)
    about = {key: members.pop(key) for key in ("says", "model", "checks") if key in members}
    return Fault(make_part(FaultyKernel, name, summary, made=of, **members), hosts, **about)


MATHS = "kernel-maths"
IN_COMPARE = (
    kernel(
        "edge-dropped", "one edge in 10,000 is missed, of few edges one",
        alter_block=lambda _, block: drop_one_in_many(block),
    ),
    kernel(
        "last-edges-dropped", "each fourth row misses its last edge",
        alter_block=lambda _, block: drop_last_of_each(block),
    ),
    kernel("edge-twice", "one edge counts twice", alter_block=lambda _, block: repeat_one(block)),
    kernel(
        "edge-misread", "one edge comes from the next source",
        alter_block=lambda _, block: misread_one(block),
    ),
    kernel(
        "sums-scaled", "sums are 3e-4 too large",
        adjacency={"after": lambda _, out: out * (1 + 3e-4)},
    ),
    kernel("inputs-float16", "sums of float16", adjacency={"before": round_to(torch.float16)}),
    kernel("inputs-bfloat16", "sums of bfloat16", adjacency={"before": round_to(torch.bfloat16)}),
    kernel("sums-float16", "sums in float16", adjacency={"after": round_to(torch.float16)}),
    kernel("rows-stale", "one sum in 50 is of the update before", (ALONE, SHARDS), of=StaleRows),
    kernel(
        "rows-shifted", "rows are the ones before",
        adjacency={"before": lambda _, rows: rows.roll(1, 0)},
    ),
    kernel(
        "column-lost", "the last column is not summed",
        adjacency={"after": lambda _, out: zero(out, (slice(None), -1))},
        checks={MATHS: r"sum of width 1 is 0"},
    ),
    kernel(
        "self-lost", "one destination's own row is missed",
        adjacency={"own_rows": lose_own_row},
    ),
    kernel("norm-wrong", "1/D(v) stands for 1/(D(v)+1)", of=OtherNorms, adjacency={"swap": lessen}),
    kernel(
        "norm-of-block", "in-degrees of the block stand for the graph's",
        (BATCHES, SHARDS, CHUNKS, ALONE), of=OtherNorms, adjacency={"swap": count_in_block},
    ),
    kernel(
        "backward-drops-100th", "backward passes miss one edge in 100", of=OtherWeights,
        adjacency={"weigh": lambda _, values: zero(values, slice(50, None, 100))},
    ),
    kernel(
        "backward-drops-10th", "backward passes miss one edge in 10", of=OtherWeights,
        adjacency={"weigh": lambda _, values: zero(values, slice(5, None, 10))},
    ),
    kernel(
        "backward-scaled", "gradients of sums are 1 % too large", of=OtherWeights,
        adjacency={"weigh": lambda _, values: values * 1.01},
    ),
    kernel(
        "attention-lost", "the attention to one edge in 1,000 is lost",
        adjacency={"edge_softmax": lose_attention},
        model="gat",
    ),
    kernel(
        "not-a-number", "one sum is no number",
        adjacency={"after": lambda _, out: zero(out, len(out) // 2, torch.nan)},
        checks={MATHS: "sum of width 1 is nan"},
    ),
    kernel(
        "weight-gradients-doubled", "W's gradient counts twice",
        times=lambda _, a, weight: a @ alter_gradient(weight, lambda g: 2 * g),
    ),
    kernel(
        "weight-gradients-bfloat16", "W's gradient is rounded",
        times=lambda _, a, weight: a @ alter_gradient(weight, lambda g: g.bfloat16().to(g.dtype)),
    ),
    kernel(
        "bias-gradients-lost", "biases have no gradient",
        add=lambda _, out, bias, last: out + alter_gradient(bias, torch.zeros_like),
    ),
    kernel(
        "last-bias-lost", "the last layer has no bias",
        add=lambda _, out, bias, last: out + 0 * bias if last else out + bias,
        checks={MATHS: "linear without weights is .* dense matrices"},
    ),
    kernel("mask-of-another", "ReLU's mask is the next row's", bend=bend_by_the_next),
    kernel(
        "mask-lost", "ReLU has no mask",
        bend=lambda _, out: out + (out.detach().relu() - out.detach()),
    ),
    kernel("logits-copied", "one row of logits is its neighbour's", end=copy_a_row),
    kernel(
        "dropout-on", "dropout is left on",
        bend=lambda _, out: torch.nn.functional.dropout(out.relu(), 0.1),
    ),
    kernel(
        "gradient-twice", "one device in four counts twice", (CHUNKS, SHARDS, BATCHES),
        end=count_twice,
    ),
    kernel(
        "unweighted", "gradients as if every device had as many seeds as the first",
        (BATCHES, SHARDS, CHUNKS), end=count_as_the_first,
    ),
    kernel(
        "update-missed", "one device in four computes with the weights of the update before",
        (CHUNKS, SHARDS, BATCHES), times=times_the_earlier,
    ),
)  # fmt: skip

# --------------------------------------------------------------------------- by the checks alone


def overwrite(self: TorchAdjacency, g: Tensor, weight: Any = None, into: Any = None) -> Tensor:
    out = TorchAdjacency.sum_transposed(self, g, weight)
    return out if into is None else into.copy_(out)


def need_a_library(_: FaultyKernel, setting: Setting) -> None:
    raise MissingDependencyError("the kernel needs the library fastgraph; install it.")


class Around(torch.Tensor):
    """A tensor that wraps another, like PyG's EdgeIndex."""

    @staticmethod
    def __new__(cls, within: Tensor) -> Around:
        wrap: Any = torch.Tensor._make_wrapper_subclass
        made: Any = wrap(cls, within.shape, dtype=within.dtype)
        made.within = within
        return made  # type: ignore[no-any-return]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["within"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(func)


def keeping(name: str, wrap: Callable[[Tensor], Tensor], *, on_itself: bool = False) -> Fault:
    """Return a kernel that keeps all its sums and does not state their bytes."""
    part: type[FaultyKernel]

    def adjacency(
        self: FaultyKernel, block: Block, dtype: torch.dtype, device: torch.device
    ) -> TorchAdjacency:
        made = PlainAdjacency(block, dtype, device)
        if on_itself and self.kept is None:
            self.kept = []  # type: ignore[misc]

        def keep(out: Tensor) -> Tensor:
            self.kept.append(wrap(out.detach().clone()))
            return out

        made.after = keep  # type: ignore[method-assign]
        return made

    kept: list[Tensor] | None = None if on_itself else []
    part = make_part(FaultyKernel, name, "keeps its sums", adjacency=adjacency, kept=kept)
    return Fault(part, checks={"costs": r"states adjacency_bytes of [\d,]+ .* holds [\d,]+"})


@dataclass
class ChosenKernel(FaultyKernel):
    """A kernel that doubles GCN's sums if an option says so."""

    name: ClassVar[str] = "wrong-by-choice"
    summary: ClassVar[str] = "sums twice as much by choice"
    doubled: bool = option(False, "another way to add")

    def adjacency(self, block: Block, dtype: torch.dtype, device: torch.device) -> TorchAdjacency:
        adjacency = super().adjacency(block, dtype, device)
        if self.doubled:
            adjacency.after = lambda out: 2 * out  # type: ignore[attr-defined]
        return adjacency


def taking(name: str, check: str, says: str, seconds: Callable[..., float]) -> Fault:
    """Return a kernel that states other times."""
    stated: Any = lambda self, work, device: seconds(self, work, device)  # noqa: E731
    return kernel(name, "states other times", (), seconds=stated, checks={check: says})


def holding(name: str, says: str, factor: int) -> Fault:
    """Return a kernel that states other bytes."""

    def adjacency_bytes(
        self: FaultyKernel, block: BlockSize, layer: LayerShape, itemsize: int
    ) -> int:
        return factor * TorchKernel.adjacency_bytes(self, block, layer, itemsize)

    return kernel(
        name, "states other bytes", (), adjacency_bytes=adjacency_bytes, checks={"costs": says}
    )


IN_CHECKS = (
    kernel(
        "gradients-overwritten", "gradients are written where they should be added", (),
        of=TorchAdjacency, adjacency={"sum_transposed": overwrite},
        checks={MATHS: "of sum of width 1, added to the rows given as 'into', is "},
    ),
    kernel(
        "wide-columns-lost", "columns beyond the 64th are not summed", (),
        adjacency={"after": lambda _, out: zero(out, (slice(None), slice(64, None)))},
        checks={MATHS: r"sum of width 65 is 0 at \[\d+, 64\]"},
    ),
    kernel(
        "softmax-of-all", "attention is shared out over all edges", (),
        adjacency={"edge_softmax": lambda _, scores: scores.softmax(0)},
        checks={MATHS: "edge_softmax is "},
    ),
    kernel(
        "mean-of-100-not-a-number", "means of 100 columns are no numbers", (), of=TorchAdjacency,
        adjacency={"mean": spoil_means_of_100},
        checks={MATHS: "mean of width 100 is nan"},
    ),
    kernel(
        "sums-a-millionth-too-large", "sums are a millionth too large", (),
        adjacency={"after": lambda _, out: out * (1 + 1e-6)},
        checks={"same-maths": r"losses .* are off from the reference's by .*1e-09"},
    ),
    taking("takes-nothing", "costs", r"states 0\.0 s .*give a time above zero", lambda *_: 0.0),
    taking("takes-for-ever", "costs", "which is no time", lambda *_: float("inf")),
    taking("takes-a-moment", "costs", "its bytes and operations alone take", lambda *_: 1e-9),
    taking("takes-an-hour", "costs", "has the wrong unit", lambda *_: 3600.0),
    taking("takes-less-than-nothing", "legal-timeline", r"states -1\.0 s on \w+ ", lambda *_: -1.0),
    taking(
        "takes-less-for-more", "costs", "which is less than the|its bytes and operations alone",
        lambda self, work, device: TorchKernel.seconds(self, work, device) / work.features**2,
    ),
    holding("holds-nothing", r"states adjacency_bytes of 0 .* adjacency holds [\d,]+", 0),
    holding("holds-ten-times", r"adjacency holds [\d,]+, far less", 10),
    keeping("keeps-on-itself", lambda out: out, on_itself=True),
    keeping("keeps-on-its-class", lambda out: out),
    keeping("keeps-wrapped", Around),
    Fault(ChosenKernel, checks={"every-choice": r"kernel.doubled=True: losses .* are off"}),
    kernel(
        "library-missing", "needs a library", (), begin=need_a_library,
        checks=dict.fromkeys(
            ("same-maths", "bytes-add-up", "capacity", MATHS, "reached"), "install it"
        ),
    ),
)  # fmt: skip
