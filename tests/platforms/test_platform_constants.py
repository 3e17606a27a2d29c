"""Every number of every bundled platform a second time, with where it comes from.

What makers and papers publish is written as they publish it (cores, clock, operations a cycle), so
that a number is held against its derivation and not against its own copy. ``assumed`` marks those
that nobody publishes: they stand here so that a change of one is seen.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations

import pytest

from gnnbench.platforms import list_platforms, load_platform
from gnnbench.platforms.machine import Device, Link, RateCurve

GB = 1e9  # bytes a second, or bytes
TERA = 1e12
GHZ = 1e9
MEGA = 1e6
US = 1e-6

ASSUMED_CORE_ZEN = (20 * GB, "assumed: one Zen core's sequential reads from DDR4-3200")
ASSUMED_CORE_INTEL = (12 * GB, "assumed: one Sapphire Rapids core's sequential reads")
ASSUMED_SAMPLING = (20 * MEGA, "assumed: one core of a native sampler")
ASSUMED_REGION = (5 * US, "assumed: opening one parallel region")
ASSUMED_LAUNCH = (10 * US, "assumed: one kernel launched from PyTorch")
ASSUMED_OPENCL = (50 * US, "assumed: one kernel enqueued through OpenCL")
ASSUMED_NVME3 = (3 * GB, "assumed: one NVMe drive on four lanes of PCIe 3.0")
ASSUMED_NVME4 = (7 * GB, "assumed: one NVMe drive on four lanes of PCIe 4.0")
ASSUMED_COPY = (10 * US, "assumed: one copy call over PCIe")
ASSUMED_MIGRATION = (30 * US, "assumed: one buffer migrated through OpenCL")
ASSUMED_PEER = (3 * US, "assumed: one peer access over NVLink")
CARD = (100 / 8 * GB, "assumed: a ConnectX-6 card with a port of 100 Gb/s")
#: What is between two nodes.
CARDS = ("node0_card", "node1_card")
ASSUMED_MESSAGE = (10 * US, "assumed: one message over InfiniBand")
ASSUMED_TCP = (30 * US, "assumed: one message over TCP in a data centre")

#: A lane carries 8 and 16 GT/s in PCIe 3.0 and 4.0: about 1 and 2 GB/s each way, times 16 lanes.
PCIE_3 = (16 * 1 * GB, "PCIe 3.0 x16, one direction, nominal")
PCIE_4 = (16 * 2 * GB, "PCIe 4.0 x16, one direction, nominal")
PCIE_4_MEASURED = (25 * GB, "BaM's authors, ZaidQureshi/bam issue 54: an A100's measured peak")
PINNED_4 = (24.6 * GB, "assumed: as large a share of 31.5 GB/s as of PCIe 3.0")
GBIT_50 = (50 / 8 * GB, "AWS: 50 Gbit/s")
PCIE_5 = (16 * 4 * GB, "PCIe 5.0 x16, one direction, nominal")
INFINIBAND = (400 / 8 * GB, "InfiniBand NDR: 400 Gbit/s a port")
NVLINK_3 = (200 * GB, "HongTu, sections 2.1 and 7.1: 200 GB/s for a pair of A100")
NVLINK_4 = (900 / 2 * GB, "NVIDIA H100 datasheet: 900 GB/s for both directions")
ETHERNET = (0.27 * GB, "fitted: a process over 20 Gbps, DistGNN of HongTu's Table 7")

#: HyScale-GNN's Figure 11 is met with 6.4 % of a host's peaks in training.
FITTED = 0.064


def loading(memory_gb: float) -> RateCurve:
    """A loaded row is read and written: half of the memory's rate and of a core's 20 GB/s."""
    return RateCurve((1,), (memory_gb / 2 * GB,), (20 / 2 * GB,))


def aggregating(memory_gb: float) -> RateCurve:
    return RateCurve((1,), (FITTED * memory_gb * GB,), (FITTED * 20 * GB,))


EPYC_7763 = {
    "cores": (64 * 2, "AMD: 64 cores, two sockets"),
    "flops_per_s": (3.6 * TERA * 2, "HyScale-GNN, Table II: 3.6 TFLOPS a socket"),
    "memory_bandwidth_bytes_per_s": (205 * GB * 2, "HyScale-GNN, Table II: 205 GB/s a socket"),
    "core_bandwidth_bytes_per_s": ASSUMED_CORE_ZEN,
    "memory_bytes": (1024 * GB, "assumed: MAG240M's features alone need 368 GB"),
    "sampled_edges_per_s": ASSUMED_SAMPLING,
    "launch_s": ASSUMED_REGION,
    "disk_bandwidth_bytes_per_s": ASSUMED_NVME3,
    "power_w": (280 * 2, "AMD: TDP 280 W, two sockets"),
    "gather": (loading(410), "half of Table II's 410 GB/s"),
    "aggregate": (aggregating(410), "fitted to HyScale-GNN's Figure 11"),
    "update": (
        RateCurve((1,), (FITTED * 7.2 * TERA,), (FITTED * 7.2 * TERA / 128,)),
        "fitted to HyScale-GNN's Figure 11",
    ),
}

XEON_8462Y = {
    "cores": (32 * 2, "Intel: 32 cores, two sockets"),
    "flops_per_s": (32 * 2.8 * GHZ * 64 * 2, "Intel: two 512-bit FMA units at 2.8 GHz"),
    "memory_bandwidth_bytes_per_s": (8 * 4.8 * GB * 8 * 2, "Intel: 8 channels of DDR5-4800"),
    "core_bandwidth_bytes_per_s": ASSUMED_CORE_INTEL,
    "memory_bytes": (16 * 64 * GB, "assumed: 16 modules of 64 GB"),
    "sampled_edges_per_s": ASSUMED_SAMPLING,
    "launch_s": ASSUMED_REGION,
    "disk_bandwidth_bytes_per_s": ASSUMED_NVME4,
    "power_w": (300 * 2, "Intel: TDP 300 W, two sockets"),
}

EPYC_7R32 = {
    "cores": (96 / 2, "AWS: 96 vCPUs, two threads of a core each"),
    "flops_per_s": (48 * 2.8 * GHZ * 32, "assumed: two 256-bit FMA units at 2.8 GHz"),
    "memory_bandwidth_bytes_per_s": (8 * 3.2 * GB * 8, "assumed: 8 channels of DDR4-3200"),
    "core_bandwidth_bytes_per_s": ASSUMED_CORE_ZEN,
    "memory_bytes": (384 * 2**30, "AWS: 384 GiB"),
    "sampled_edges_per_s": ASSUMED_SAMPLING,
    "launch_s": ASSUMED_REGION,
}

A10G = {
    "flops_per_s": (31.2 * TERA, "assumed: that of NVIDIA's A10"),
    "memory_bandwidth_bytes_per_s": (600 * GB, "Baseten: 600 GB/s"),
    "memory_bytes": (24 * GB, "Baseten: 24 GB"),
    "launch_s": ASSUMED_LAUNCH,
    "sampled_edges_per_s": (200 * MEGA, "assumed: as an RTX A5000"),
    "power_w": (300, "nvidia-smi: TDP"),
}

H100 = {
    "flops_per_s": (67 * TERA, "NVIDIA H100 datasheet: SXM, float32"),
    "memory_bandwidth_bytes_per_s": (3.35 * TERA, "NVIDIA H100 datasheet: SXM, 3.35 TB/s"),
    "memory_bytes": (80 * GB, "NVIDIA H100 datasheet: SXM"),
    "launch_s": ASSUMED_LAUNCH,
    "power_w": (700, "NVIDIA H100 datasheet: SXM, TDP"),
}

U250 = {
    "memory_bandwidth_bytes_per_s": (77 * GB, "HyScale-GNN, Table II; HP-GNN's script"),
    "memory_bytes": (4 * 16 * GB, "Xilinx: four DDR4 channels of 16 GB"),
    "launch_s": ASSUMED_OPENCL,
    "power_w": (225, "Xilinx: maximum total power"),
    "pipelined": (True, "HyScale-GNN, section V: AGGREGATE and UPDATE at once"),
}

ECS_R5 = {
    "cores": (56 // 2, "HongTu, section 7.1: 56 vCPUs; assumed: two threads of a core each"),
    "flops_per_s": (28 * 2.5 * GHZ * 32, "assumed: Skylake, two 256-bit FMA units at 2.5 GHz"),
    "memory_bandwidth_bytes_per_s": (
        149 * GB,
        "assumed: 28 of 48 cores' share of 256 GB/s (12 channels of DDR4-2666)",
    ),
    "memory_bytes": (512 * GB, "HongTu, section 7.1"),
    "launch_s": ASSUMED_REGION,
}

A5000 = {
    "flops_per_s": (27.8 * TERA, "HyScale-GNN, Table II"),
    "memory_bandwidth_bytes_per_s": (768 * GB, "HyScale-GNN, Table II"),
    "memory_bytes": (24 * GB, "NVIDIA RTX A5000 datasheet"),
    "sampled_edges_per_s": (200 * MEGA, "assumed: ten host cores' rate"),
    "launch_s": ASSUMED_LAUNCH,
    "power_w": (230, "NVIDIA RTX A5000 datasheet"),
}

#: bandwidthTest reaches 12 to 12.5 of PCIe 3.0's 16 GB/s from pinned memory.
PINNED_3 = (12.3 * GB, "CUDA samples")
ASSUMED_CORE_SKYLAKE = (10 * GB, "assumed: one older Xeon core's sequential reads from DDR4")
ASSUMED_HALF = (10 * MEGA, "assumed: one core of a native sampler, halved")
GIB = 2**30


def xeon(
    cores: float, ghz: float, lanes: int, gb_a_second: float, memory: float, **others: object
) -> dict[str, tuple[object, str]]:
    """An Intel host of so many cores, each with ``lanes`` float32 operations a cycle."""
    return {
        "cores": (cores, "AWS: two vCPUs a core, or the source of the measurements"),
        "flops_per_s": (cores * ghz * GHZ * lanes, "Intel: base clock, two FMA units"),
        "memory_bandwidth_bytes_per_s": (gb_a_second * GB, "Intel: channels of DDR4"),
        "core_bandwidth_bytes_per_s": ASSUMED_CORE_SKYLAKE,
        "memory_bytes": (memory, "AWS, or the source of the measurements"),
        "sampled_edges_per_s": ASSUMED_HALF,
        "launch_s": ASSUMED_REGION,
        **{name: (value, "as assumed or published") for name, value in others.items()},
    }


ICE_LAKE = {"core_bandwidth_bytes_per_s": 12 * GB, "sampled_edges_per_s": 20 * MEGA}
V100 = {
    "flops_per_s": (15.7 * TERA, "NVIDIA V100 datasheet: SXM2, float32"),
    "memory_bandwidth_bytes_per_s": (900 * GB, "NVIDIA V100 datasheet: SXM2"),
    "sampled_edges_per_s": (200 * MEGA, "assumed: as for the RTX A5000"),
    "launch_s": ASSUMED_LAUNCH,
    "power_w": (300, "NVIDIA V100 datasheet: SXM2"),
}

#: By platform and device; of accelerators by the name before their number.
DEVICES = {
    "r6i-16xlarge": {"host": xeon(64 // 2, 2.9, 64, 8 * 3.2 * 8, 512 * GIB, **ICE_LAKE)},
    "r6i-12xlarge": {
        "host": xeon(48 // 2, 2.9, 64, 8 * 3.2 * 8 * 24 / 32, 384 * GIB, **ICE_LAKE),
    },
    "c5-9xlarge": {"host": xeon(36 // 2, 3.0, 64, 6 * 8 * 8 / 3, 72 * GIB)},
    "m5d-24xlarge": {"host": xeon(96 // 2, 2.5, 64, 2 * 6 * 8 * 8 / 3, 384 * GIB)},
    "xeon6246r": {"host": xeon(16, 3.4, 64, 6 * 8 * 2.933, 768 / 2 * GB, power_w=205)},
    "p3-2xlarge": {
        "host": xeon(8 // 2, 2.3, 32, 17.07, 61 * GIB),
        "gpu": {**V100, "memory_bytes": (16 * GB, "NVIDIA V100 datasheet: 16 GB")},
    },
    "xeon8163x2-8xv100": {
        "host": xeon(2 * 24, 2.5, 64, 2 * 6 * 8 * 8 / 3, 512 * GB),
        "gpu": {**V100, "memory_bytes": (32 * GB, "GNNLab's artifact")},
    },
    "epyc7543x4-4xa100": {
        "host": {
            "cores": (32 * 4, "AMD: 32 cores, four sockets"),
            "flops_per_s": (32 * 2.8 * GHZ * 32 * 4, "AMD: two 256-bit FMA units at 2.8 GHz"),
            "memory_bandwidth_bytes_per_s": (8 * 3.2 * GB * 8 * 4, "AMD: 8 channels of DDR4-3200"),
            "core_bandwidth_bytes_per_s": ASSUMED_CORE_ZEN,
            "memory_bytes": (128 * 4 * GB, "HongTu, section 7.1: 128 GB a socket"),
            "sampled_edges_per_s": ASSUMED_SAMPLING,
            "launch_s": ASSUMED_REGION,
            "disk_bandwidth_bytes_per_s": ASSUMED_NVME3,
            "sockets": (4, "HongTu, section 7.1"),
            "socket_bandwidth_bytes_per_s": (
                9.6 * 2 * GB / 2,
                "assumed: QPI, 2 bytes at 9.6 GT/s, for the two GPUs of a side (HongTu, Figure 1)",
            ),
            "power_w": (225 * 4, "AMD: TDP 225 W, four sockets"),
        },
        "gpu": {
            "flops_per_s": (19.5 * TERA, "NVIDIA A100 datasheet: float32"),
            "memory_bandwidth_bytes_per_s": (2039 * GB, "NVIDIA A100 datasheet: 80 GB SXM"),
            "memory_bytes": (80 * GB, "HongTu, section 7.1"),
            "launch_s": ASSUMED_LAUNCH,
            "power_w": (400, "NVIDIA A100 datasheet: 80 GB SXM"),
        },
    },
    "epyc7763x2-4xa5000": {
        "host": EPYC_7763,
        "gpu": A5000,
    },
    "epyc7763x2-4xu250": {
        "host": EPYC_7763,
        "fpga": {
            **U250,
            "flops_per_s": (2 * 2048 * 300 * MEGA, "HyScale-GNN, Table IV: 2048 MACs at 300 MHz"),
            "sampled_edges_per_s": (300 * MEGA, "assumed: an edge a cycle at 300 MHz"),
        },
    },
    "ryzen3990x-a100-u250": {
        "host": {
            "cores": (64, "HP-GNN, section 1"),
            "flops_per_s": (19.5 / 5.27 * TERA, "HP-GNN, section 6: a 5.27th of the A100's"),
            "memory_bandwidth_bytes_per_s": (1555 / 14.5 * GB, "HP-GNN, section 6: a 14.5th"),
            "core_bandwidth_bytes_per_s": ASSUMED_CORE_ZEN,
            "memory_bytes": (8 * 32 * GB, "assumed: eight modules of 32 GB"),
            "sampled_edges_per_s": ASSUMED_SAMPLING,
            "launch_s": ASSUMED_REGION,
            "disk_bandwidth_bytes_per_s": ASSUMED_NVME3,
            "power_w": (280, "AMD: TDP"),
            "gather": (loading(107), "half of the memory's rate"),
            "aggregate": (aggregating(107), "as HyScale-GNN's host"),
            "update": (
                RateCurve((1,), (FITTED * 3.7 * TERA,), (FITTED * 3.7 * TERA / 64,)),
                "as HyScale-GNN's host",
            ),
        },
        "gpu": {
            "flops_per_s": (19.5 * TERA, "NVIDIA A100 datasheet: float32"),
            "memory_bandwidth_bytes_per_s": (1555 * GB, "NVIDIA A100 datasheet: 40 GB"),
            "memory_bytes": (40 * GB, "NVIDIA A100 datasheet: 40 GB"),
            "launch_s": ASSUMED_LAUNCH,
            "power_w": (250, "NVIDIA A100 datasheet: 40 GB PCIe"),
        },
        "fpga": {
            **U250,
            "flops_per_s": (2 * 4 * 256 * 300 * MEGA, "HP-GNN's script: 256 MACs a die, four dies"),
        },
    },
    "ecs-r5x16": {
        "host": {
            **ECS_R5,
            "core_bandwidth_bytes_per_s": (10 * GB, "assumed: one Skylake core"),
            "sampled_edges_per_s": (20 / 2 * MEGA, "assumed: half of a Zen 3 core's"),
        },
        "node": ECS_R5,
    },
    "xeon8462-8xh100-8xspu": {
        "host": XEON_8462Y,
        "gpu": H100,
        "spu": {
            "flops_per_s": (16_384 * 500 * MEGA, "MixGCN, section 4.1: 16,384 adders at 500 MHz"),
            "memory_bandwidth_bytes_per_s": (4 * 256 * GB, "MixGCN, section 4.1: 1 TB/s of HBM"),
            "memory_bytes": (4 * 8 * GB, "assumed: four HBM2 stacks of 8 GB"),
            "launch_s": (5 * US, "assumed: one descriptor fetched"),
            "power_w": (38.96, "MixGCN, section 4.1"),
        },
    },
    "epyc7763x4-8xa5000": {
        "node": {key: each for key, each in EPYC_7763.items() if "disk" not in key},
        **{f"node{node}_gpu": A5000 for node in range(2)},
    },
    "g5-24xlarge-2n": {"node": EPYC_7R32, **{f"node{node}_gpu": A10G for node in range(2)}},
    "xeon8462x4-32xh100": {
        "host": XEON_8462Y,
        **{f"node{node}_gpu": H100 for node in range(4)},
    },
}

#: How many of each there are.
COUNTS = {
    "r6i-16xlarge": {},
    "r6i-12xlarge": {},
    "c5-9xlarge": {},
    "m5d-24xlarge": {},
    "xeon6246r": {},
    "p3-2xlarge": {"gpu": 1},
    "xeon8163x2-8xv100": {"gpu": 8},
    "epyc7543x4-4xa100": {"gpu": 4},
    "epyc7763x2-4xa5000": {"gpu": 4},
    "epyc7763x2-4xu250": {"fpga": 4},
    "epyc7763x4-8xa5000": {f"node{node}_gpu": 4 for node in range(2)},
    "ryzen3990x-a100-u250": {"gpu": 1, "fpga": 1},
    "ecs-r5x16": {"node": 16},
    "xeon8462-8xh100-8xspu": {"gpu": 8, "spu": 8},
    "g5-24xlarge-2n": {f"node{node}_gpu": 2 for node in range(2)},
    "xeon8462x4-32xh100": {f"node{node}_gpu": 8 for node in range(4)},
}

#: By platform and kinds of ends: bandwidth, latency, and what it goes through.
LINKS = {
    "r6i-16xlarge": {},
    "r6i-12xlarge": {},
    "c5-9xlarge": {},
    "m5d-24xlarge": {},
    "xeon6246r": {},
    "p3-2xlarge": {("host", "gpu"): (PINNED_3, ASSUMED_COPY, None)},
    "xeon8163x2-8xv100": {
        ("host", "gpu"): (PINNED_3, ASSUMED_COPY, None),
        ("gpu", "gpu"): (PINNED_3, ASSUMED_COPY, "host"),
    },
    "epyc7543x4-4xa100": {
        ("host", "gpu"): (PCIE_4_MEASURED, ASSUMED_COPY, None),
        ("gpu", "gpu"): (NVLINK_3, ASSUMED_PEER, None),
    },
    "epyc7763x2-4xa5000": {
        ("host", "gpu"): (PCIE_4, ASSUMED_COPY, None),
        ("gpu", "gpu"): (PCIE_4, ASSUMED_COPY, "host"),
    },
    "epyc7763x2-4xu250": {
        ("host", "fpga"): (PCIE_3, ASSUMED_MIGRATION, None),
        ("fpga", "fpga"): (PCIE_3, ASSUMED_MIGRATION, "host"),
    },
    "epyc7763x4-8xa5000": {
        ("node", "node"): (CARD, ASSUMED_MESSAGE, CARDS),
        ("node0_gpu", "node1_gpu"): (CARD, ASSUMED_MESSAGE, CARDS),
        **{("node", f"node{n}_gpu"): (PCIE_4, ASSUMED_COPY, None) for n in range(2)},
        **{(f"node{n}_gpu", f"node{n}_gpu"): (PCIE_4, ASSUMED_COPY, f"node{n}") for n in range(2)},
    },
    "g5-24xlarge-2n": {
        ("node", "node"): (GBIT_50, ASSUMED_TCP, CARDS),
        ("node0_gpu", "node1_gpu"): (GBIT_50, ASSUMED_TCP, CARDS),
        **{("node", f"node{n}_gpu"): (PINNED_4, ASSUMED_COPY, None) for n in range(2)},
        **{
            (f"node{n}_gpu", f"node{n}_gpu"): (PINNED_4, ASSUMED_COPY, f"node{n}") for n in range(2)
        },
    },
    "ryzen3990x-a100-u250": {
        ("host", "gpu"): (PCIE_4, ASSUMED_COPY, None),
        ("host", "fpga"): (PCIE_3, ASSUMED_MIGRATION, None),
        ("gpu", "fpga"): (PCIE_3, ASSUMED_MIGRATION, "host"),
    },
    "ecs-r5x16": {
        ("host", "node"): (ETHERNET, ASSUMED_TCP, None),
        ("node", "node"): (ETHERNET, ASSUMED_TCP, "host"),
    },
    "xeon8462-8xh100-8xspu": {
        ("host", "gpu"): (PCIE_5, ASSUMED_COPY, None),
        ("host", "spu"): (PCIE_5, ASSUMED_COPY, None),
        ("gpu", "gpu"): (NVLINK_4, ASSUMED_PEER, None),
        ("spu", "gpu"): (PCIE_5, ASSUMED_COPY, "host"),
        ("spu", "spu"): (PCIE_5, ASSUMED_COPY, "host"),
    },
    "xeon8462x4-32xh100": {
        ("host", "node0_gpu"): (PCIE_5, ASSUMED_COPY, None),
        **{("host", f"node{n}_gpu"): (INFINIBAND, ASSUMED_MESSAGE, None) for n in (1, 2, 3)},
        **{(f"node{n}_gpu", f"node{n}_gpu"): (NVLINK_4, ASSUMED_PEER, None) for n in range(4)},
        **{
            (f"node{a}_gpu", f"node{b}_gpu"): (INFINIBAND, ASSUMED_MESSAGE, "host")
            for a in range(4)
            for b in range(a + 1, 4)
        },
    },
}

#: The Ryzen's numbers are rounded where they are derived: two ratios of HP-GNN, and a share.
ROUNDED = {
    "flops_per_s": 1e-3,
    "memory_bandwidth_bytes_per_s": 3e-3,
    "aggregate": 5e-4,
}
#: What a device is called, and what it is here.
NAMES = {"name", "kind", "model", "virtual", "torch_device"}


#: Last caches, MB: of an Intel host L3 and, beside it, L2 of its cores; of others L3; L2 of GPUs.
CACHES = {
    ("r6i-16xlarge", "host"): 54 + 32 * 1.25,
    ("r6i-12xlarge", "host"): 54 * 24 / 32 + 24 * 1.25,
    ("c5-9xlarge", "host"): 24.75 + 18,
    ("m5d-24xlarge", "host"): 2 * (33 + 24),
    ("xeon6246r", "host"): 35.75 + 16,
    ("p3-2xlarge", "host"): 45 * 4 / 18 + 4 * 0.25,
    ("xeon8163x2-8xv100", "host"): 2 * (33 + 24),
    ("epyc7543x4-4xa100", "host"): 4 * 256,
    ("ecs-r5x16", "host"): 28 * (1.375 + 1),
    ("ecs-r5x16", "node"): 28 * (1.375 + 1),
    ("p3-2xlarge", "gpu"): 6,
    ("xeon8163x2-8xv100", "gpu"): 6,
    ("epyc7543x4-4xa100", "gpu"): 40,
    ("ryzen3990x-a100-u250", "gpu"): 40,
    ("epyc7763x2-4xa5000", "gpu"): 6,
    **{("epyc7763x4-8xa5000", f"node{node}_gpu"): 6 for node in range(2)},
    **{("g5-24xlarge-2n", f"node{node}_gpu"): 6 for node in range(2)},
    ("xeon8462-8xh100-8xspu", "gpu"): 50,
    **{("xeon8462x4-32xh100", f"node{node}_gpu"): 50 for node in range(4)},
}


def is_close(one: object, other: object, tolerance: float = 1e-12) -> bool:
    if isinstance(one, RateCurve) and isinstance(other, RateCurve):
        return one.widths == other.widths and all(
            is_close(a, b, tolerance)
            for mine, theirs in ((one.rates, other.rates), (one.core_rates, other.core_rates))
            for a, b in zip(mine, theirs, strict=True)
        )
    if isinstance(one, bool | None) or isinstance(other, bool | None):
        return one == other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=tolerance)
    return one == other


def kind_of(name: str) -> str:
    return name if name == "host" else name.rstrip("0123456789")


def test_every_bundled_platform_is_here():
    bundled = {entry.name for entry in list_platforms()} - {"local"}
    assert bundled == set(DEVICES) == set(LINKS) == set(COUNTS)


@pytest.mark.parametrize("name", DEVICES)
def test_every_number_of_a_device(name):
    platform = load_platform(name)
    counted: dict[str, int] = {}
    for device in platform.accelerators:
        counted[kind_of(device.name)] = counted.get(kind_of(device.name), 0) + 1
    assert counted == COUNTS[name]
    defaults = {field.name: field.default for field in dataclasses.fields(Device)}
    for device in platform.devices:
        known = DEVICES[name][kind_of(device.name)]
        cache = 1e6 * CACHES.get((name, kind_of(device.name)), 0)
        assert device.cache_bytes == pytest.approx(cache, rel=0.03), (device.name, name)
        assert not device.libraries
        assert not device.mapped_from_bytes
        for field in set(defaults) - NAMES - {"cache_bytes", "mapped_from_bytes", "libraries"}:
            expected, source = known.get(field, (defaults[field], "not stated"))
            rounded = name.startswith("ryzen") and device.name == "host"
            tolerance = ROUNDED.get(field, 1e-12) if rounded else 1e-12
            found = getattr(device, field)
            assert is_close(found, expected, tolerance), (device.name, field, found, source)


@pytest.mark.parametrize("name", LINKS)
def test_every_number_of_a_link(name):
    platform = load_platform(name)
    kinds: set[tuple[str, str]] = set()
    for link in platform.links:
        ends = (kind_of(link.ends[0]), kind_of(link.ends[1]))
        key = ends if ends in LINKS[name] else ends[::-1]
        kinds.add(key)
        (bandwidth, source), (latency_s, why), via = LINKS[name][key]
        assert is_close(link.bandwidth_bytes_per_s, bandwidth), (link.name, source)
        assert is_close(link.latency_s, latency_s), (link.name, why)
        assert link.via == (via if isinstance(via, tuple) else (via,) if via else ()), link.name
        assert link.shared == (via == CARDS)
        assert link.picked_bytes_per_s is None, link.name
        assert not link.limited, link.name
        assert not link.blocking, link.name
    assert kinds == set(LINKS[name])
    assert {field.name for field in dataclasses.fields(Link)} == {
        "name", "ends", "bandwidth_bytes_per_s", "latency_s", "via", "shared", "picked_bytes_per_s",
        "limited", "blocking",
    }  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_every_pair_of_devices_has_one_link(name):
    platform = load_platform(name)
    pairs = [frozenset(link.ends) for link in platform.links]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {
        frozenset((a.name, b.name))
        for a, b in combinations(platform.devices, 2)
        # A device and the host of another node have none.
        if len({a, b} & set(platform.hosts)) != 1 or platform.host_of(a) == platform.host_of(b)
    }
