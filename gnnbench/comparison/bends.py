"""The bends of a model: its ReLUs, with gradients that jump where their input is zero.

An input may be a unit of rounding above zero in one correct run and below zero in another. The two
gradients then differ by the contribution of that input, which is far more than rounding. The
reference passes therefore record their ReLUs. Gradients can be computed as if some inputs were on
the other side of zero.
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

#: Places in a flattened input, int64, and the change of the gradient factor at each of them.
Turn = tuple[Tensor, Tensor]

_RELUS = frozenset(
    (torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, functional.relu, functional.relu_)
)
_LEAKY = frozenset((functional.leaky_relu, functional.leaky_relu_))


@dataclass(slots=True, eq=False)
class Bend:
    """A ReLU of a forward pass and its input, of any shape.

    The gradient is 1 above zero and ``slope`` below. ``turn`` is for gradients computed next.
    """

    input: Tensor
    slope: float
    turn: Turn | None = None

    def find_close(self, margins: Tensor) -> Tensor:
        """Return the places of the flattened input that are as close to zero as their row's margin.

        ``margins`` is ``(n, 1)`` for an input ``(n, f)``, or else one number. Exact zeros are left
        out: they do not come from rounding.
        """
        size = self.input.abs()
        return torch.nonzero(((size <= margins) & (size > 0)).flatten()).squeeze(1)

    def relative_margins(self, share: float) -> Tensor:
        """Return margins for ``find_close``: ``share`` times the mean size of each row."""
        return share * _row_sizes(self.input)

    def rounding_margins(self, other: Bend, times: float) -> Tensor:
        """Return margins for ``find_close``: ``times`` the input error of a rounded pass."""
        return times * _row_sizes(other.input.double() - self.input)

    def differs(self, other: Bend) -> Turn:
        """Return the turn that puts the inputs on the sides that they have in another pass."""
        ours, theirs = self.input > 0, other.input > 0
        places = torch.nonzero((ours != theirs).flatten()).squeeze(1)
        change = (1.0 - self.slope) * (theirs.flatten()[places].double() * 2.0 - 1.0)
        return places, change

    def sway(self, places: Tensor, *, together: bool) -> Turn:
        """Return the turn that moves ``places`` to another side.

        With ``together`` all move to their other side, as where rows are equal. Otherwise a random
        half moves one way and half the other.
        """
        if together:
            ups = self.input.flatten()[places] <= 0
        else:
            generator = torch.Generator().manual_seed(0)
            ups = torch.randint(0, 2, (len(places),), generator=generator)
        return places, (1.0 - self.slope) * (ups.double() * 2.0 - 1.0)


def _row_sizes(values: Tensor) -> Tensor:
    """Return the root mean square of each row of a matrix, ``(n, 1)``, or of a whole tensor."""
    dims = (1,) if values.dim() == 2 else None
    sizes: Tensor = values.square().mean(dim=dims, keepdim=True).sqrt()
    return sizes


class Bends(TorchFunctionMode):
    """A mode that replaces every ReLU and keeps each as a ``Bend`` in ``found``, in call order."""

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
    """ReLU, leaky or not, with a backward pass in which inputs can change sides."""

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
