"""A model's functions as C++ expressions, and their slopes.

The Python functions stay the only definition: ``torch.fx`` traces them. Anything beyond arithmetic
on single features is refused.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor, fx

from gnnbench.errors import UsageError
from gnnbench_plugins.hpgnn.operators import Operators

_CPP: Mapping[object, str] = {
    operator.add: "({} + {})",
    operator.sub: "({} - {})",
    operator.mul: "({} * {})",
    operator.truediv: "({} / {})",
    operator.neg: "(-{})",
    torch.add: "({} + {})",
    torch.sub: "({} - {})",
    torch.mul: "({} * {})",
    torch.div: "({} / {})",
    torch.neg: "(-{})",
    torch.abs: "fabsf({})",
    torch.relu: "fmaxf({}, 0.0f)",
    torch.maximum: "fmaxf({}, {})",
    torch.minimum: "fminf({}, {})",
}


@dataclass(frozen=True, slots=True)
class Expressions:
    """A model's functions as C++ expressions of floats.

    ``scatter`` uses ``h`` and ``weight``, ``gather`` ``a`` and ``b``. UPDATE multiplies ``pieces``,
    which use ``a`` and ``own``, side by side by W. ``finish`` uses ``product`` and ``bias``.
    ``sigma``, of ``z``, is an outermost ReLU or ``z``.
    """

    scatter: str
    gather: str
    pieces: tuple[str, ...]
    finish: str
    sigma: str
    uses_own: bool


@dataclass(frozen=True, slots=True)
class Slopes:
    """Derivatives of functions that are linear in features, as C++ expressions.

    ``scatter`` depends on ``weight``; ``gathered`` and ``own`` have a slope for each piece;
    ``product`` and ``bias`` are the slopes of the expression around the product; ``sigma`` is a
    function of sigma's result.
    """

    scatter: str
    gathered: tuple[str, ...]
    own: tuple[str, ...]
    product: str
    bias: str
    sigma: str


def differentiate(model: str, operators: Operators) -> Slopes:
    """Return the slopes of a model's functions, which must not depend on features.

    Raises ``UsageError`` for a gather that is no sum. It also does for a scatter or an update that
    is not linear in features, except for an outermost ReLU. The kernels then have forward
    propagation only.
    """
    expressions = translate(model, operators)
    if expressions.gather not in ("a + b", "b + a"):
        raise UsageError(
            f"gather of model {model} is no sum, and each source's share in its result is not "
            f"known backward; use a + b."
        )
    scatter = _Traced(model, "scatter", operators.scatter, ("h", "weight"))
    update = _Traced(model, "update", operators.update, ("a", "own", "weight", "bias"))
    product = update.product
    pieces = _pieces_of(product.args[0])
    end = update.result
    sigma = "sigma > 0.0f ? 1.0f : 0.0f" if _is_relu(end) else "1.0f"
    if _is_relu(end):
        end = end.args[0]
    return Slopes(
        scatter.slope(scatter.result, scatter.inputs["h"], scatter.name({"weight": "weight"})),
        tuple(update.slope(piece, update.inputs["a"], {}) for piece in pieces),
        tuple(update.slope(piece, update.inputs["own"], {}) for piece in pieces),
        update.slope(end, product, {}),
        update.slope(end, update.inputs["bias"], {}),
        sigma,
    )


def translate(model: str, operators: Operators) -> Expressions:
    """Return the functions in C++.

    Raises ``UsageError`` for a function with more than arithmetic on single features, and for an
    update that is not such arithmetic around one product with W.
    """
    scatter = _Traced(model, "scatter", operators.scatter, ("h", "weight"))
    gather = _Traced(model, "gather", operators.gather, ("a", "b"))
    update = _Traced(model, "update", operators.update, ("a", "own", "weight", "bias"))
    product = update.product
    rows = update.name({"a": "a", "own": "own"})
    pieces = tuple(update.spell(piece, rows) for piece in _pieces_of(product.args[0]))
    if len(pieces) != operators.update_widths:
        raise UsageError(
            f"update of model {model} multiplies {len(pieces)} rows side by side by W, and "
            f"update_widths says {operators.update_widths}; make both the same."
        )
    end, sigma = update.result, "z"
    if _is_relu(end):
        end, sigma = end.args[0], "fmaxf(z, 0.0f)"
    return Expressions(
        scatter=scatter.spell(scatter.result, scatter.name({"h": "h", "weight": "weight"})),
        gather=gather.spell(gather.result, gather.name({"a": "a", "b": "b"})),
        pieces=pieces,
        finish=update.spell(end, {product: "product", **update.name({"bias": "bias"})}),
        sigma=sigma,
        uses_own=any(update.inputs["own"] is node for node in _inputs_of(product.args[0])),
    )


def without_sigma(model: str, operators: Operators) -> Callable[..., Tensor]:
    """Return UPDATE without an outermost ReLU, for the last layer.

    Raises ``UsageError`` if torch.fx cannot trace it.
    """
    update = _Traced(model, "update", operators.update, ("a", "own", "weight", "bias"))
    end = update.result
    if not _is_relu(end):
        return operators.update
    output = update.nodes[-1]
    output.args = (end.args[0],)
    return fx.GraphModule(torch.nn.Module(), output.graph)


#: Python functions around any callable, by their number of arguments: fx traces only these.
_WRAPPERS: Mapping[int, Callable[[Callable[..., Tensor]], Callable[..., Tensor]]] = {
    2: lambda function: lambda a, b: function(a, b),
    4: lambda function: lambda a, b, c, d: function(a, b, c, d),
}


class _Traced:
    """A function of a model as a graph of operations."""

    def __init__(
        self, model: str, role: str, function: Callable[..., Tensor], names: tuple[str, ...]
    ) -> None:
        self.where = f"{role} of model {model}"
        try:
            graph = fx.Tracer().trace(_WRAPPERS[len(names)](function))
        except Exception as error:  # the user's function may raise anything when it gets a symbol
            reason = str(error).splitlines()[0]
            raise UsageError(f"{self.where} cannot be translated to C++: {reason}.") from None
        self.nodes = tuple(graph.nodes)
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.inputs = dict(zip(names, inputs, strict=True))
        self.result = self.nodes[-1].args[0]

    @property
    def product(self) -> fx.Node:
        """UPDATE's one product with W."""
        functions = (operator.matmul, torch.matmul, torch.mm)
        products: list[fx.Node] = [node for node in self.nodes if node.target in functions]
        if len(products) != 1 or products[0].args[1] is not self.inputs["weight"]:
            raise UsageError(
                f"{self.where} does not multiply rows by W once; write it as arithmetic around one "
                f"'rows @ weight'."
            )
        return products[0]

    def slope(self, value: object, variable: fx.Node, names: Mapping[fx.Node, str]) -> str:
        """Return the derivative of a value by a node in which it is linear, as a C++ expression."""
        if value is variable:
            return "1.0f"
        if not isinstance(value, fx.Node) or variable not in _inputs_of(value):
            return "0.0f"
        target, args = _target_of(value), value.args
        known = not value.kwargs
        if known and target in (operator.add, torch.add, operator.sub, torch.sub):
            sign = "+" if target in (operator.add, torch.add) else "-"
            one, other = (self.slope(each, variable, names) for each in args)
            return f"({one} {sign} {other})"
        if known and target in (operator.neg, torch.neg):
            return f"(-{self.slope(args[0], variable, names)})"
        if known and target in (operator.mul, torch.mul, operator.truediv, torch.div):
            rows, factor = args
            divides = target in (operator.truediv, torch.div)
            if not divides and variable not in _inputs_of(rows):
                rows, factor = factor, rows
            if variable not in _inputs_of(factor):
                slope, by = self.slope(rows, variable, names), self._spell(factor, names)
                return f"({slope} {'/' if divides else '*'} {by})"
        raise UsageError(f"{self.where} is not linear in {variable}; write it as a weighted sum.")

    def name(self, names: Mapping[str, str]) -> dict[fx.Node, str]:
        """Return C++ names of some of the inputs."""
        return {self.inputs[mine]: name for mine, name in names.items()}

    def spell(self, value: object, names: Mapping[fx.Node, str]) -> str:
        """Return a value as a C++ expression of named nodes, without the outermost brackets."""
        text = self._spell(value, names)
        return text[1:-1] if text.startswith("(") else text

    def _spell(self, value: object, names: Mapping[fx.Node, str]) -> str:
        if isinstance(value, bool | int | float):
            return f"{float(value)!r}f"
        if isinstance(value, fx.Node):
            if value in names:
                return names[value]
            pattern = _CPP.get(_target_of(value))
            if pattern and not value.kwargs and pattern.count("{}") == len(value.args):
                return pattern.format(*(self._spell(each, names) for each in value.args))
        raise UsageError(
            f"{self.where} uses {value!s}, which has no place in a kernel; use its own arguments, "
            f"numbers, + - * /, abs, relu, maximum and minimum."
        )


def _target_of(node: fx.Node) -> object:
    """Return the function that a node calls; a tensor's method is the function of that name."""
    if node.op == "call_method":
        return getattr(torch, str(node.target), None)
    return node.target


def _is_relu(value: object) -> TypeGuard[fx.Node]:
    return isinstance(value, fx.Node) and _target_of(value) is torch.relu


def _pieces_of(rows: object) -> tuple[object, ...]:
    """Return the pieces that are joined side by side into the rows that W multiplies."""
    if isinstance(rows, fx.Node) and rows.target is torch.cat:
        joined, dim = rows.args[0], rows.kwargs.get("dim", rows.args[1:])
        if isinstance(joined, list | tuple) and dim in (-1, 1, (-1,), (1,)):
            return tuple(joined)
    return (rows,)


def _inputs_of(value: object) -> set[fx.Node]:
    """Return every node that a value is made of."""
    if not isinstance(value, fx.Node):
        return set()
    return {value}.union(*(_inputs_of(each) for each in value.all_input_nodes))
