"""HyScale-GNN (Lin and Prasanna): hybrid CPU + accelerator mini-batch training.

``placement`` holds the hybrid trainers, ``performance`` Equations 6 to 13, ``drm`` Algorithm 1,
``communication`` the two-stage feature prefetching, ``rounding`` features that cross as float16 or
int8.
"""

from __future__ import annotations

from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Part
from gnnbench.records import Ablation, PartKind, Parts, Strategy, read_card
from gnnbench_plugins.hyscale.communication import (
    HalfPrecisionCommunication,
    HyScaleCommunication,
    IntegerCommunication,
)
from gnnbench_plugins.hyscale.placement import HyScalePlacement

#: Figure 11, "up to", against the baseline (section VI-F).
GAINS = {"+hybrid": 1.13, "+DRM": 1.33, "+TFP": 1.79}
#: Settings that the steps of Figure 11 switch off.
_NO_CPU: tuple[PartKind, str, str] = ("placement", "cpu_trainer", "false")
_STATIC: tuple[PartKind, str, str] = ("placement", "drm", "false")
_NO_PREFETCH: tuple[PartKind, str, str] = ("communication", "stages", "0")
#: A Pthread belongs to one task (section VI-B), so that there are threads to balance before TFP.
_OWN_THREADS: tuple[PartKind, str, str] = ("placement", "own_threads", "true")


@hookimpl
def gnnbench_parts() -> list[type[Part]]:
    return [
        HyScalePlacement,
        HyScaleCommunication,
        HalfPrecisionCommunication,
        IntegerCommunication,
    ]


@hookimpl
def gnnbench_strategy() -> list[Strategy]:
    return [
        Strategy(
            name="hyscale",
            summary="hybrid CPU + accelerator training, dynamic resource management, prefetching",
            source="HyScale-GNN: A Scalable Hybrid GNN Training System on Single-Node "
            "Heterogeneous Architecture",
            bundles={"mini-batch": Parts("neighbour", "hyscale", "hyscale", "host", "torch")},
            ablation=(
                Ablation("offload all", options=(_NO_CPU, _STATIC, _NO_PREFETCH, _OWN_THREADS)),
                Ablation(
                    "+hybrid",
                    options=(_STATIC, _NO_PREFETCH, _OWN_THREADS),
                    quoted=GAINS["+hybrid"],
                ),
                Ablation("+DRM", options=(_NO_PREFETCH, _OWN_THREADS), quoted=GAINS["+DRM"]),
                Ablation("+TFP", quoted=GAINS["+TFP"]),
            ),
            plain="data-parallel",
            platform="epyc7763x2-4xa5000",
            card=read_card(__file__, "hyscale"),
        )
    ]
