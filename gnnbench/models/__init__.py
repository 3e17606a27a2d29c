"""GNN models as stacks of aggregate + update layers.

``build`` makes a model from a workload; all training starts from equal parameters, drawn from the
workload's seed. ``TorchLayer`` is the base class of a user's own model.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from gnnbench.errors import PluginError, UsageError
from gnnbench.models.bound import BoundBlock as BoundBlock
from gnnbench.models.bound import Degrees as Degrees
from gnnbench.models.bound import EdgeValues as EdgeValues
from gnnbench.models.bound import list_scales as list_scales
from gnnbench.models.layers import (
    CommNetLayer,
    GATLayer,
    GCNLayer,
    GGCNLayer,
    GINLayer,
    ProjectedCommNetLayer,
    ProjectedGCNLayer,
    ProjectedGINLayer,
    ProjectedSAGELayer,
    SAGELayer,
)
from gnnbench.models.layers import Layer as Layer
from gnnbench.models.layers import glorot as glorot
from gnnbench.models.user import TorchLayer as TorchLayer
from gnnbench.parts import LayerClass, LayerShape
from gnnbench.records import Workload

#: The bundled models by name.
MODELS: Mapping[str, LayerClass] = {
    "gcn": GCNLayer,
    "sage": SAGELayer,
    "gin": GINLayer,
    "gat": GATLayer,
    "commnet": CommNetLayer,
    "ggcn": GGCNLayer,
}

#: Layers that multiply by W before they aggregate, of the models whose maths allows it.
PROJECTED: Mapping[str, LayerClass] = {
    "gcn": ProjectedGCNLayer,
    "sage": ProjectedSAGELayer,
    "gin": ProjectedGINLayer,
    "commnet": ProjectedCommNetLayer,
}


class GNN(nn.Module):
    """A stack of layers; ``forward`` is the plain whole-batch pass used for evaluation."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        #: The layers, input to output, typed.
        self.stack = tuple(layers)

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        """The shapes of all layers, first to last."""
        return tuple(layer.shape for layer in self.stack)

    def forward(self, bounds: Sequence[BoundBlock], h: Tensor) -> Tensor:
        """Return logits ``(D, classes)`` from the input rows ``(S, f0)`` of the first block."""
        for layer, bound in zip(self.stack, bounds, strict=True):
            h = layer.update(bound, layer.aggregate(bound, h))
        return h


def build(
    workload: Workload,
    projected: Collection[int] = (),
    model: LayerClass | None = None,
    *,
    masked: bool = False,
    scaled: bool = False,
) -> GNN:
    """Return the workload's model with freshly drawn parameters, in the workload's dtype.

    Parameters
    ----------
    projected
        Numbers, from 0, of the layers that multiply by W before they aggregate.
    model
        The class of the layers; None selects the bundled model of the workload's name.
    masked
        Whether AGGREGATE's backward pass applies the mask of the preceding ReLU where it can. It
        can in bundled layers that aggregate their input first, all of which follow a ReLU.
    scaled
        Whether edges are multiplied by their sampler's scales, and priced accordingly.

    Raises
    ------
    UsageError
        For a name that no bundled model has.
    PluginError
        For a class that does not make trainable layers.
    """
    if model is None and workload.model not in MODELS:
        raise UsageError(
            f"there is no bundled model {workload.model!r}; there is {', '.join(MODELS)}."
        )
    plain = model or MODELS[workload.model]
    generator = torch.Generator().manual_seed(workload.seed)
    last = workload.num_layers - 1
    # torch's own initialisers draw from its global generator.
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(workload.seed)
        layers = [
            _make_layer(
                PROJECTED[workload.model] if i in projected else plain,
                workload.dims[i],
                workload.dims[i + 1],
                activation=i < last,
                generator=generator,
            )
            for i in range(workload.num_layers)
        ]
    bundled: Collection[object] = MODELS.values()
    for below, layer in itertools.pairwise(layers):
        masks = masked and layer.cacheable and type(layer) in bundled
        layer.masks_below = below.masked_above = masks
    for layer in layers:
        layer.weighted = scaled or (workload.edge_weights and layer.takes_weights)
    gnn = GNN(layers)
    return gnn.to(torch.float32 if workload.dtype == "float32" else torch.float64)


def _make_layer(
    model: LayerClass,
    in_features: int,
    out_features: int,
    *,
    activation: bool,
    generator: torch.Generator,
) -> Layer:
    """Make one layer, and reject tensors and parameters that would silently not be trained."""
    what = f"model {model.name!r}"
    try:
        layer = model(in_features, out_features, activation=activation, generator=generator)
    except Exception as error:
        raise PluginError(
            f"a layer of {what} cannot be made with in_features={in_features}, "
            f"out_features={out_features}, activation={activation}: {type(error).__name__}: "
            f"{str(error).rstrip('.')}."
        ) from error
    if not isinstance(layer, Layer):
        raise PluginError(f"{what} makes {layer!r}, which is not a gnnbench.models.Layer.")
    if (layer.in_features, layer.out_features) != (in_features, out_features):
        raise PluginError(
            f"a layer of {what} for {in_features} to {out_features} features says that it is for "
            f"{layer.in_features} to {layer.out_features}; pass on what __init__ was given."
        )
    for name, value in vars(layer).items():
        if isinstance(value, Tensor):
            raise PluginError(
                f"{what} keeps {name!r} as a plain tensor ({value.dtype}), which is neither "
                f"trained nor converted to the workload's dtype. Make it a torch.nn.Parameter, or "
                f"register_buffer a constant."
            )
    parameters = dict(layer.named_parameters())
    frozen = [name for name, value in parameters.items() if not value.requires_grad]
    if frozen:
        raise PluginError(
            f"{what} has a parameter {frozen[0]!r} without a gradient, which the optimiser would "
            f"still decay; make it a buffer by register_buffer."
        )
    if not parameters:
        raise PluginError(
            f"a layer of {what} has no parameters, so there is nothing to train; assign a "
            f"torch.nn.Parameter or a module to an attribute in __init__."
        )
    return layer
