"""Every number of every bundled platform: by a digest, by its derivation, and against physics.

A digest notices that a number was changed. The derivations and the ranges say whether it is right.
"""

import hashlib
from collections.abc import Iterator
from functools import cache
from itertools import combinations

import pytest

from gnnbench.machines import list_platforms, load_platform
from gnnbench.machines.machine import Device, Link, Platform, RateCurve
from gnnbench.machines.tables import flatten, list_leaves

#: The first digits of the SHA-256 of all numbers of a platform, in the text of ``list_numbers``.
DIGESTS = {
    "c5-9xlarge": "4618e16d42bc4145",
    "ecs-r5x16": "f8c575991f84a555",
    "epyc7543x4-4xa100": "34312f11da037e19",
    "epyc7763x2-4xa5000": "a32e9600730df4a4",
    "epyc7763x2-4xu250": "1c0dd547f886e855",
    "epyc7763x4-8xa5000": "881e3ea3aaad786b",
    "g5-24xlarge-2n": "9e76faa2ef59a0a4",
    "m5d-24xlarge": "8655b1aa68e3b0b0",
    "p3-2xlarge": "6eb3c2f4797ffbb3",
    "r6i-12xlarge": "11b7d72cb0c636b0",
    "r6i-16xlarge": "abd3404b0b03f07b",
    "ryzen3990x-a100-u250": "76ebcbdd3a3ad316",
    "server-gtx1080ti": "62711d5026f0369d",
    "server-p100": "6d7c56ec2b6da6e1",
    "server-rtx3090": "934d6fd1f184db05",
    "xeon6246r": "6ebb4592c09adef4",
    "xeon8163x2-8xv100": "25078a46579f55c0",
    "xeon8462-8xh100-8xspu": "490325e01298cdda",
    "xeon8462x4-32xh100": "3587218a086072cd",
}
NAMES = sorted(DIGESTS)
#: Rates that the makers and the papers publish as a product, or that follow from another number.
DERIVED = [
    ("epyc7763x2-4xa5000", "host", "flops_per_s", 2 * 3.6e12),  # HyScale-GNN, Table II
    ("epyc7763x2-4xa5000", "host", "memory_bandwidth_bytes_per_s", 2 * 205e9),
    ("epyc7763x2-4xa5000", "host", "power_w", 2 * 280),
    ("epyc7763x2-4xa5000", "gpu3", "flops_per_s", 27.8e12),
    ("epyc7763x2-4xa5000", "gpu3", "memory_bandwidth_bytes_per_s", 768e9),
    ("epyc7763x2-4xu250", "fpga2", "flops_per_s", 2 * 2048 * 300e6),  # 2048 MACs (Equation 12)
    ("epyc7763x2-4xu250", "fpga2", "memory_bytes", 4 * 16e9),
    ("epyc7763x2-4xu250", "fpga2", "pipelined", True),
    ("ryzen3990x-a100-u250", "fpga0", "flops_per_s", 2 * 4 * 256 * 300e6),  # HP-GNN's script
    ("epyc7543x4-4xa100", "host", "flops_per_s", 4 * 32 * 2.8e9 * 32),  # two 256-bit FMA units
    ("epyc7543x4-4xa100", "host", "memory_bandwidth_bytes_per_s", 4 * 8 * 3.2e9 * 8),
    ("epyc7543x4-4xa100", "host", "memory_bytes", 4 * 128e9),  # HongTu, section 7.1
    ("epyc7543x4-4xa100", "host", "cache_bytes", 4 * 256e6),
    ("ecs-r5x16", "node7", "flops_per_s", 28 * 2.5e9 * 32),
    ("xeon8462-8xh100-8xspu", "host", "flops_per_s", 2 * 32 * 2.8e9 * 64),  # two 512-bit FMA units
    ("xeon8462-8xh100-8xspu", "host", "memory_bandwidth_bytes_per_s", 2 * 8 * 4.8e9 * 8),
    ("xeon8462-8xh100-8xspu", "spu7", "flops_per_s", 16_384 * 500e6),  # MixGCN, section 4.1
    ("xeon8462-8xh100-8xspu", "spu7", "memory_bandwidth_bytes_per_s", 4 * 256e9),
    ("xeon8462-8xh100-8xspu", "spu7", "power_w", 38.96),
    ("r6i-16xlarge", "host", "flops_per_s", 32 * 2.9e9 * 64),
    ("r6i-12xlarge", "host", "memory_bandwidth_bytes_per_s", 8 * 3.2e9 * 8 * 24 / 32),
    ("m5d-24xlarge", "host", "memory_bandwidth_bytes_per_s", 2 * 6 * 8 * 8e9 / 3),
    ("c5-9xlarge", "host", "flops_per_s", 18 * 3.0e9 * 64),
    ("g5-24xlarge-2n", "node0", "memory_bytes", 384 * 2**30),
]
#: The nominal rate between a pair of devices, and the devices that forward it.
LINKS = [
    ("epyc7763x2-4xa5000", "gpu0-gpu2", 16 * 2e9, ("host",)),  # PCIe 4.0 x16
    ("epyc7763x2-4xu250", "host-fpga1", 16 * 1e9, ()),  # PCIe 3.0 x16
    ("epyc7543x4-4xa100", "gpu1-gpu2", 200e9, ()),  # NVLink, HongTu, sections 2.1 and 7.1
    ("epyc7543x4-4xa100", "host-gpu3", 25e9, ()),  # measured
    ("xeon8462-8xh100-8xspu", "gpu0-gpu7", 900e9 / 2, ()),
    ("xeon8462x4-32xh100", "node1_gpu0-node2_gpu0", 400e9 / 8, ("host",)),
    ("epyc7763x4-8xa5000", "node0_gpu0-node1_gpu3", 100e9 / 8, ("node0_card", "node1_card")),
    ("g5-24xlarge-2n", "node0-node1", 50e9 / 8, ("node0_card", "node1_card")),
]


@cache
def load(name: str) -> Platform:
    return load_platform(name)


def list_numbers(platform: Platform) -> Iterator[str]:
    """All fields of devices and links that are not their defaults, a line each."""
    for part in (*platform.devices, *platform.links):
        defaults = list_leaves(type(part))
        for name, value in flatten(part).items():
            if value != defaults[name].default:
                said = f"{value:.12g}" if isinstance(value, int | float) else str(value)
                yield f"{part.name}.{name} = {said}"


def list_curves(device: Device) -> Iterator[tuple[RateCurve, float]]:
    """The effective rates of a device, and the peak that each cannot exceed."""
    for name in ("gather", "aggregate", "aggregate_backward", "update"):
        plain = device.hardware
        peak = plain.flops_per_s if name == "update" else plain.memory_bandwidth_bytes_per_s
        if (curve := getattr(device.rates, name)) is not None:
            yield curve, peak


def test_every_bundled_platform_is_here() -> None:
    assert {entry.name for entry in list_platforms()} - {"local"} == set(DIGESTS)


@pytest.mark.parametrize("name", NAMES)
def test_no_number_of_a_platform_has_changed(name: str) -> None:
    text = "\n".join(list_numbers(load(name)))
    found = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert found == DIGESTS[name], f"check each number, then write {found!r} for {name}:\n{text}"


@pytest.mark.parametrize(("platform", "device", "field", "value"), DERIVED)
def test_a_number_is_what_it_is_derived_from(platform, device, field, value) -> None:
    assert flatten(load(platform).device(device))[field] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(("platform", "name", "rate", "via"), LINKS)
def test_a_link_is_what_carries_it(platform, name, rate, via) -> None:
    link = load(platform).place(name)
    assert isinstance(link, Link)
    assert link.bandwidth_bytes_per_s == pytest.approx(rate, rel=1e-9)
    assert (link.via, link.shared) == (via, len(via) == 2)


def test_ratios_are_those_of_the_papers() -> None:
    """HP-GNN, section 6: 5.27 times the operations and 14.5 times the memory bandwidth. HyScale-GNN
    in training reaches 6.4 % of a host's peaks, and loading reads and writes each row."""
    hpgnn = load("ryzen3990x-a100-u250")
    host, gpu = hpgnn.host, hpgnn.device("gpu0")
    assert gpu.hardware.flops_per_s / host.hardware.flops_per_s == pytest.approx(5.27, rel=0.001)
    ratio = gpu.hardware.memory_bandwidth_bytes_per_s / host.hardware.memory_bandwidth_bytes_per_s
    assert ratio == pytest.approx(14.5, rel=0.003)
    for name in ("epyc7763x2-4xa5000", "epyc7763x2-4xu250", "ryzen3990x-a100-u250"):
        host = load(name).host
        memory, core = (
            host.hardware.memory_bandwidth_bytes_per_s,
            host.memory.core_bandwidth_bytes_per_s,
        )
        rates = [(curve.rates[0], curve.core_rates[0]) for curve, _ in list_curves(host)]
        gather, aggregate, update = rates
        assert gather == pytest.approx((memory / 2, core / 2), rel=1e-9)
        assert aggregate == pytest.approx((0.064 * memory, 0.064 * core), rel=5e-4)
        every = 0.064 * host.hardware.flops_per_s
        assert update == pytest.approx((every, every / host.cores), rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_platform_is_physically_possible(name: str) -> None:
    platform = load(name)
    for device in platform.devices:
        assert 1e11 < device.hardware.flops_per_s < 1e14
        assert 1e10 < device.hardware.memory_bandwidth_bytes_per_s < 1e13
        assert (
            device.memory.core_bandwidth_bytes_per_s <= device.hardware.memory_bandwidth_bytes_per_s
        )
        assert 1e9 < device.hardware.memory_bytes < 1e13
        assert device.hardware.cache_bytes < 2e9 < device.hardware.memory_bytes
        assert 1e-6 < device.hardware.launch_s < 1e-4
        assert device.hardware.power_w is None or 30 < device.hardware.power_w < 1000
        for curve, peak in list_curves(device):
            pairs = zip(curve.core_rates, curve.rates, strict=True)
            assert all(0 < core <= together <= peak for core, together in pairs)
    for link in platform.links:
        ends = [platform.device(end) for end in link.ends]
        slowest = min(end.hardware.memory_bandwidth_bytes_per_s for end in ends)
        assert 1e8 < link.bandwidth_bytes_per_s < slowest
        assert 1e-6 < link.latency_s < 1e-4


def test_the_same_product_has_the_same_numbers_on_every_platform() -> None:
    """Except the cores and the memory that a cloud machine has of its processor."""
    products: dict[str, set[tuple[float, ...]]] = {}
    for device in (device for name in NAMES for device in load(name).devices):
        shares = (device.cores, 1.0) if device.kind == "cpu" else (1, device.hardware.memory_bytes)
        numbers = (
            device.hardware.memory_bandwidth_bytes_per_s / shares[0],
            device.hardware.launch_s,
            device.hardware.power_w or 0.0,
            device.hardware.flops_per_s / shares[0] if device.kind != "fpga" else 0.0,
            shares[1],
        )
        products.setdefault(device.model, set()).add(tuple(float(f"{n:.9g}") for n in numbers))
    assert [model for model, found in products.items() if len(found) > 1] == []
    assert len(products) > 15


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_devices_has_one_link(name: str) -> None:
    platform = load(name)
    pairs = [frozenset(link.ends) for link in platform.links]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {
        frozenset((a.name, b.name))
        for a, b in combinations(platform.devices, 2)
        # A device and the host of another node have none.
        if len({a, b} & set(platform.hosts)) != 1 or platform.host_of(a) == platform.host_of(b)
    }
