"""Where a model bends: ReLUs, whose gradient jumps where their input is next to nothing.

An input that is a unit of rounding above zero in one right run is below it in another. The
gradients of the two then differ by far more than rounding, by what that one input contributes. So
the passes that runs are held against know their ReLUs, and gradients can be asked for as they would
be with some of them on their other side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

#: Places in a flattened input, int64, and by how much the gradient that passes there is to change.
Turn = tuple[Tensor, Tensor]

_RELUS = frozenset(
    (torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, functional.relu, functional.relu_)
)
_LEAKY = frozenset((functional.leaky_relu, functional.leaky_relu_))


@dataclass(slots=True, eq=False)
class Bend:
    """A ReLU of a forward pass, of gradient 1 above zero and ``slope`` below: its input, of any
    shape. ``turn`` is in force for the gradients that are computed next."""

    input: Tensor
    slope: float
    turn: Turn | None = None

    def find_close(self, margins: Tensor) -> Tensor:
        """Places of the flattened input that are as close to zero as their row's margin.

        ``margins`` is ``(n, 1)`` for an input ``(n, f)``, or else one number. What is zero itself
        is so by no rounding, and is not among them.
        """
        size = self.input.abs()
        return torch.nonzero(((size <= margins) & (size > 0)).flatten()).squeeze(1)

    def relative_margins(self, share: float) -> Tensor:
        """As margins for ``find_close``, so much of the mean size of each row."""
        return share * _row_sizes(self.input)

    def rounding_margins(self, other: Bend, times: float) -> Tensor:
        """As margins for ``find_close``, so many times how far a rounded pass's input is off."""
        return times * _row_sizes(other.input.double() - self.input)

    def differs(self, other: Bend) -> Turn:
        """What turns it to the sides on which another pass's inputs are."""
        ours, theirs = self.input > 0, other.input > 0
        places = torch.nonzero((ours != theirs).flatten()).squeeze(1)
        change = (1.0 - self.slope) * (theirs.flatten()[places].double() * 2.0 - 1.0)
        return places, change

    def sway(self, places: Tensor, *, together: bool) -> Turn:
        """Return what turns some places: all to their other side, as where rows are equal, or half
        of them one way and half the other, by chance."""
        if together:
            ups = self.input.flatten()[places] <= 0
        else:
            generator = torch.Generator().manual_seed(0)
            ups = torch.randint(0, 2, (len(places),), generator=generator)
        return places, (1.0 - self.slope) * (ups.double() * 2.0 - 1.0)


def _row_sizes(values: Tensor) -> Tensor:
    """The root mean square of each row of a matrix, ``(n, 1)``, or of all of another tensor."""
    dims = (1,) if values.dim() == 2 else None
    sizes: Tensor = values.square().mean(dim=dims, keepdim=True).sqrt()
    return sizes


class Bends(TorchFunctionMode):
    """While it is entered, every ReLU is one that ``found`` keeps, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Bend] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _RELUS:
            return self._bend(args[0] if args else kwargs["input"], 0.0)
        if func in _LEAKY:
            given = dict(zip(("input", "negative_slope"), args, strict=False)) | kwargs
            return self._bend(given["input"], given.get("negative_slope", 0.01))
        return func(*args, **kwargs)

    def _bend(self, rows: Tensor, slope: float) -> Tensor:
        bend = Bend(rows.detach(), slope)
        self.found.append(bend)
        out: Tensor = _Bend.apply(rows, bend)  # type: ignore[no-untyped-call]
        return out


class _Context(FunctionCtx):
    bend: Bend


class _Bend(Function):
    """ReLU, leaky or not, with a backward pass whose sides can be changed."""

    @staticmethod
    def forward(ctx: _Context, rows: Tensor, bend: Bend) -> Tensor:
        ctx.bend = bend
        if bend.slope:
            return torch.where(rows > 0, rows, bend.slope * rows)
        return rows.clamp(min=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, g: Tensor) -> tuple[Tensor, None]:
        bend = ctx.bend
        passes = bend.input > 0
        out = torch.where(passes, g, bend.slope * g) if bend.slope else g * passes
        if bend.turn is not None:
            places, change = bend.turn
            flat = out.view(-1)
            flat[places] += (g.flatten()[places] * change).to(out.dtype)
        return out, None
