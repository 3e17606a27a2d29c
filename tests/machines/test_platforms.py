"""Platform files: what the bundled ones say, what is refused and how, and the probe."""

import dataclasses
import functools
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gnnbench.errors import GnnbenchError, PlatformError, UsageError
from gnnbench.machines import local
from gnnbench.machines import probe as probing
from gnnbench.machines.describe import default_platform, list_platforms, load_platform, local_path
from gnnbench.machines.machine import Link, Platform, RateCurve, Route
from gnnbench.machines.show import show_platform, to_toml
from gnnbench.machines.tables import replace_fields
from gnnbench.machines.timing import FEWEST_RUNS

BUNDLED = (
    "c5-9xlarge", "ecs-r5x16", "epyc7543x4-4xa100", "epyc7763x2-4xa5000", "epyc7763x2-4xu250",
    "epyc7763x4-8xa5000", "g5-24xlarge-2n", "m5d-24xlarge", "p3-2xlarge", "r6i-12xlarge",
    "r6i-16xlarge", "ryzen3990x-a100-u250", "server-gtx1080ti", "server-p100", "server-rtx3090",
    "xeon6246r", "xeon8163x2-8xv100", "xeon8462-8xh100-8xspu", "xeon8462x4-32xh100",
)  # fmt: skip
#: Rows that are shown and are no numbers.
TEXTS = ("kind", "model", "pipelined", "via", "shared")

HOST = """
name = "small"
description = "one host"
[host]
model = "a processor"
cores = { value = 4, source = "s" }
flops = { value = 0.1, unit = "TFLOP/s", source = "s" }
memory_bandwidth = { value = 205, unit = "GB/s", source = "s" }
core_bandwidth = { value = 10, unit = "GB/s", source = "s" }
memory = { value = 8, unit = "GiB", source = "s" }
sampling = { value = 20, unit = "Medges/s", source = "s" }
launch = { value = 5, unit = "us", source = "s" }
"""
GPUS = """
[[accelerators]]
name = "gpu"
kind = "gpu"
model = "a GPU"
count = { value = 2, source = "s" }
flops = { value = 10, unit = "TFLOP/s", source = "s" }
memory_bandwidth = { value = 500, unit = "GB/s", source = "s" }
memory = { value = 8, unit = "GB", source = "s" }
launch = { value = 10, unit = "us", source = "s" }
"""
HOST_LINK = """
[[links]]
from = "host"
to = "gpu"
bandwidth = { value = 16, unit = "GB/s", source = "s" }
latency = { value = 10, unit = "us", source = "s" }
"""
SMALL = HOST + GPUS + HOST_LINK


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def read(text: str, tmp_path: Path) -> Platform:
    path = tmp_path / "small.toml"
    path.write_text(text, encoding="utf-8")
    return load_platform(str(path))


def refuse(text: str, tmp_path: Path) -> str:
    """The sentence a file is refused with, without the file's name."""
    with pytest.raises(PlatformError) as error:
        read(text, tmp_path)
    sentence = str(error.value)
    start = f"platform file {tmp_path / 'small.toml'}"
    assert sentence.startswith(start)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence.removeprefix(start).removeprefix(":").strip().removesuffix(".")


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_platform_is_modelled_and_sourced_and_reads_back_equal(
    name: str, tmp_path: Path
) -> None:
    platform = load_platform(name)
    assert platform.name == name
    assert platform.virtual
    assert all(device.virtual and device.torch_device == "cpu" for device in platform.devices)
    for row in show_platform(platform):
        number = row.key.count(".") == 1 and row.key.split(".")[1] not in TEXTS
        assert bool(row.source) == number, row
    assert read(to_toml(platform), tmp_path) == platform
    (entry,) = (entry for entry in list_platforms() if entry.name == name)
    assert (entry.path.name, entry.description) == (f"{name}.toml", platform.description)


def test_a_transfer_via_the_host_holds_a_lane_of_both_host_links() -> None:
    pcie, nvlink = load_platform("epyc7763x2-4xa5000"), load_platform("epyc7543x4-4xa100")
    host, one, other = pcie.host, pcie.device("gpu1"), pcie.device("gpu3")
    assert pcie.route(one, other) == Route("gpu1-gpu3", ("gpu1>host", "host>gpu3"))
    assert pcie.route(host, one) == Route("host-gpu1", ("host>gpu1",))
    assert pcie.route(one, host) == Route("host-gpu1", ("gpu1>host",))
    assert pcie.route(one, one) == Route("gpu1", ("gpu1",))
    one, other = nvlink.device("gpu1"), nvlink.device("gpu3")
    assert nvlink.route(other, one) == Route("gpu1-gpu3", ("gpu3>gpu1",))


SWITCHED = """
[[links]]
from = "gpu"
to = "gpu"
via = "nvswitch"
shared = true
"""


def test_gpus_behind_a_switch_share_their_ports(tmp_path: Path) -> None:
    text = Path(probing.__file__).with_name("epyc7543x4-4xa100.toml").read_text()
    path = tmp_path / "switched.toml"
    plain = '\n[[links]]\nfrom = "gpu"\nto = "gpu"\n'
    assert text.count(plain) == 1
    path.write_text(text.replace(plain, SWITCHED))
    platform = load_platform(str(path))
    one, other = platform.device("gpu0"), platform.device("gpu2")
    assert platform.route(one, other) == Route("gpu0-gpu2", ("gpu0>nvswitch", "nvswitch>gpu2"))
    assert platform.shared_lanes == {
        lane for n in range(4) for lane in (f"gpu{n}>nvswitch", f"nvswitch>gpu{n}")
    }
    rows = {row.key: row.value for row in show_platform(platform)}
    assert (rows["gpu-gpu.via"], rows["gpu-gpu.shared"]) == ("nvswitch", "true")
    again = tmp_path / "again.toml"
    again.write_text(to_toml(platform))
    assert load_platform(str(again)).links == platform.links


def test_a_way_through_two_network_cards_has_a_lane_between_them() -> None:
    link = Link("gpu0-gpu4", ("gpu0", "gpu4"), 1e9, via=("card0", "card1"), shared=True)
    assert link.lanes("gpu0") == ("gpu0>card0", "card0>card1", "card1>gpu4")
    assert link.lanes("gpu4") == ("gpu4>card1", "card1>card0", "card0>gpu0")


def test_list_names_local_and_every_bundled_file() -> None:
    entries = list_platforms()
    assert tuple(entry.name for entry in entries) == ("local", *BUNDLED)
    assert entries[0].path is None


def test_show_gives_value_and_source() -> None:
    rows = {row.key: row for row in show_platform(load_platform("epyc7763x2-4xu250"))}
    assert rows["fpga.memory_bandwidth"].value == "77.0 GB/s"
    assert rows["fpga.memory_bandwidth"].source == "HyScale-GNN, Table II"
    assert rows["fpga.count"].value == "4"
    assert rows["fpga.pipelined"].value == "true"
    assert rows["host-fpga.latency"].value == "30.0 µs"


@pytest.mark.parametrize(
    ("cuda", "name"), [(False, "epyc7763x2-4xa5000"), (True, "local")], ids=["no-cuda", "cuda"]
)
def test_default_platform(cuda: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert default_platform().name == name


def test_any_number_and_text_reads_back_equal(tmp_path: Path) -> None:
    platform = read(SMALL, tmp_path)
    odd = dataclasses.replace(
        platform,
        description='a "quoted" name, a \\ backslash, µ, a tab\tand a delete\x7f',
        host=replace_fields(
            platform.host, flops_per_s=1e12 / 3, memory_bytes=12_345_678_901, launch_s=0.0
        ),
        links=tuple(dataclasses.replace(link, latency_s=0.1 + 0.2) for link in platform.links),
    )
    assert read(to_toml(odd), tmp_path) == odd


def test_devices_of_their_own_names_read_back_equal(tmp_path: Path) -> None:
    """Unlike GPUs have an entry each, and a link may name one device of a group."""
    extra = GPUS.replace('"gpu"\nkind', '"big"\nkind').replace(
        'count = { value = 2, source = "s" }', 'cores = { value = 108, source = "s" }'
    )
    links = HOST_LINK.replace('"gpu"', '"big"') + HOST_LINK.replace('"host"', '"gpu1"').replace(
        'to = "gpu"', 'to = "big"'
    )
    platform = read(SMALL + extra + links, tmp_path)
    assert [device.name for device in platform.accelerators] == ["gpu0", "gpu1", "big"]
    assert platform.device("big").cores == 108
    assert [link.name for link in platform.links] == [
        "host-gpu0",
        "host-gpu1",
        "host-big",
        "gpu1-big",
    ]
    assert read(to_toml(platform), tmp_path) == platform


def test_host_comes_first_in_a_link(tmp_path: Path) -> None:
    turned = HOST_LINK.replace('from = "host"', 'from = "gpu"').replace('to = "gpu"', 'to = "host"')
    assert read(HOST + GPUS + turned, tmp_path) == read(SMALL, tmp_path)


def test_writing_needs_sources(tmp_path: Path) -> None:
    platform = dataclasses.replace(read(HOST, tmp_path), sources={})
    with pytest.raises(PlatformError, match=r"has no source for host\.flops"):
        to_toml(platform)


RATES = (
    "gather = { widths = [16, 256], values = [2, 3.5], core_values = [1, 1.5], "
    'unit = "GB/s", source = "s" }\n'
)


def test_rates_by_width_are_read_shown_and_read_back_equal(tmp_path: Path) -> None:
    platform = read(HOST + RATES, tmp_path)
    assert platform.host.rates.gather == RateCurve((16, 256), (2e9, 3.5e9), (1e9, 1.5e9))
    assert platform.host.rates.aggregate is None
    assert platform.host.gather_bytes_per_s(16) == 2e9
    assert platform.host.gather_bytes_per_s(16, threads=1) == 1e9
    assert platform.host.aggregate_bytes_per_s(16) == 205e9
    rows = {row.key: row for row in show_platform(platform)}
    assert rows["host.gather"].source == "s"
    assert rows["host.gather"].value == (
        "2.00 GB/s at width 16 to 3.50 GB/s at 256, one core 1.00 GB/s to 1.50 GB/s"
    )
    assert read(to_toml(platform), tmp_path) == platform


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[2, 3.5]", "[2]",
         "gather of [host]: 2 widths, 1 values and 2 core_values; give each width one of either"),
        ("[16, 256]", "[256, 16]", "gather of [host]: widths must ascend"),
        ('unit = "GB/s", ', "", 'gather of [host] has no unit; add unit = "GB/s"'),
    ],
)  # fmt: skip
def test_rates_by_width_are_refused_with_a_sentence(
    old: str, new: str, sentence: str, tmp_path: Path
) -> None:
    assert refuse(HOST + RATES.replace(old, new), tmp_path) == sentence


COUNT = 'count = { value = 2, source = "s" }'
BANDWIDTH = 'memory_bandwidth = { value = 205, unit = "GB/s", source = "s" }'


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("memory_bandwidth = { value = 205", "memory_bandwith = { value = 205",
         "unknown key 'memory_bandwith' in [host]; did you mean 'memory_bandwidth'"),
        ('name = "small"', 'name = "small"\nplatform = 3',
         "unknown key 'platform' in the file; choose from name, description, step, "
         "host, accelerators, links, calibration"),
        ('value = 500, unit = "GB/s"', 'value = 500, units = "GB/s"',
         "unknown key 'units' in memory_bandwidth of [[accelerators]] gpu; did you mean 'unit'"),
        ('model = "a processor"\n', "", '[host] has no model; add model = "..."'),
        (BANDWIDTH, "", "[host] has no memory_bandwidth; add memory_bandwidth = "
         '{ value = 205, unit = "GB/s", source = "..." }'),
        ("[host]", '[host]\ncore_fresh_bandwidth = { value = 1, unit = "GB/s", source = "s" }',
         "[host] has no fresh_bandwidth; give it with core_fresh_bandwidth"),
        ('value = 205, unit = "GB/s"', "value = 205",
         'memory_bandwidth of [host] has no unit; add unit = "GB/s"'),
        (BANDWIDTH, 'memory_bandwidth = { value = 205, unit = "GB/s" }',
         'memory_bandwidth of [host] has no source; add source = "..."'),
        (BANDWIDTH, 'memory_bandwidth = { unit = "GB/s", source = "s" }',
         "memory_bandwidth of [host] has no value; add value = 205"),
        (BANDWIDTH, "memory_bandwidth = 205",
         "memory_bandwidth of [host] is 205 without a unit and a source; write "
         'memory_bandwidth = { value = 205, unit = "GB/s", source = "..." }'),
        ('count = { value = 2, source = "s" }', "count = 2",
         "count of [[accelerators]] gpu is 2 without a source; "
         'write count = { value = 4, source = "..." }'),
        ('value = 205, unit = "GB/s"', 'value = 205, unit = "GB"',
         "memory_bandwidth of [host]: unit 'GB' is not one of bytes per second "
         "(such as B/s, kB/s, KB/s, MB/s)"),
        ("value = 16,", "value = -16,",
         "bandwidth of [[links]] host to gpu is -16; it must be above zero"),
        ("value = 205", "value = 0", "memory_bandwidth of [host] is 0; it must be above zero"),
        ('latency = { value = 10, unit = "us"', 'latency = { value = -10, unit = "us"',
         "latency of [[links]] host to gpu is -10; it must be zero or more"),
        ("value = 205", "value = inf",
         "memory_bandwidth of [host] is inf; it must be a finite number"),
        ("value = 205", 'value = "205"',
         "memory_bandwidth of [host] is '205'; it must be a number"),
        ("cores = { value = 4,", "cores = { value = 4.5,",
         "cores of [host] is 4.5; it must be a whole number"),
        ("count = { value = 2,", "count = { value = 100_000,",
         "count of [[accelerators]] gpu is 100000; it must be at most 1024"),
        ('unit = "TFLOP/s", source = "s" }\nmemory_bandwidth = { value = 205',
         'unit = 3, source = "s" }\nmemory_bandwidth = { value = 205',
         "unit of flops of [host] is 3; it must be a text in quotes"),
        ('kind = "gpu"', 'kind = "tpu"',
         "kind of [[accelerators]] gpu is 'tpu'; it must be 'cpu', 'gpu', 'fpga' or 'sparse'"),
        ('kind = "gpu"', 'kind = "gpu"\npipelined = 1',
         "pipelined of [[accelerators]] gpu is 1; it must be true or false"),
        ('name = "gpu"', 'name = "g-pu"', "name of [[accelerators]] g-pu is 'g-pu'; "
         "it must be letters, digits and underscores, and begin with no digit"),
        ('to = "gpu"', 'to = "gpus"',
         "[[links]] host to gpus: there is no device 'gpus'; did you mean 'gpu'"),
        ('to = "gpu"', 'to = "fpga7"',
         "[[links]] host to fpga7: there is no device 'fpga7'; choose from host, gpu"),
        ('to = "gpu"', 'to = "host"',
         "[[links]] host to host joins host to itself; name two different devices"),
        ('to = "gpu"', 'to = "gpu0"',
         'gpu1 has no link to the host; add a [[links]] entry from = "host" to = "gpu1"'),
        ('name = "small"', 'name = "small"\nstep = { value = -1, unit = "s", source = "s" }',
         "step of the file is -1; it must be zero or more"),
        ('to = "gpu"', 'to = "gpu"\nvia = "host"',
         "[[links]] host to gpu goes via host, one of its own ends; take out via"),
        ('to = "gpu"', 'to = "gpu"\nvia = 5',
         "via of [[links]] host to gpu is 5; it must be a list"),
        ('sampling = { value = 20, unit = "Medges/s", source = "s" }\n', "",
         "[host] has no sampling; add sampling = "
         '{ value = 20, unit = "Medges/s", source = "..." }'),
        ("[host]", "[host]\npipelined = true",
         "unknown key 'pipelined' in [host]; choose from model, flops, memory_bandwidth, "
         "memory, launch, cache, power, cores, core_bandwidth, fresh_bandwidth, "
         "core_fresh_bandwidth, mapped_from, disk_bandwidth, sockets, socket_bandwidth, sampling, "
         "gather, aggregate, aggregate_backward, update, libraries"),
        ('kind = "gpu"', 'kind = "gpu"\nsockets = { value = 2, source = "s" }',
         "unknown key 'sockets' in [[accelerators]] gpu; choose from name, kind, model, flops, "
         "memory_bandwidth, memory, launch, cache, power, pipelined, cores, sampling, gather, "
         "aggregate, aggregate_backward, update, libraries, count"),
        ('name = "gpu"', 'name = "gpu2"',
         "[[accelerators]] gpu2 has a count, which numbers its devices; "
         "take the digits off its name"),
        ('name = "gpu"', 'name = "host"',
         "two entries are called 'host'; give each [[accelerators]] its own name"),
        ('name = "gpu"\nkind', 'name = "gpu" kind',
         "cannot be read: it is not valid TOML: Expected newline or end of document after a "
         "statement (at line 15, column 14)"),
    ],
)  # fmt: skip
def test_refused_with_a_sentence(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    assert SMALL.count(old) >= 1
    assert refuse(SMALL.replace(old, new, 1), tmp_path) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", 'the file has no name; add name = "..." (and 2 more)'),
        (HOST.replace("value = 205", "value = -1").replace("value = 4", "value = 0"),
         "memory_bandwidth of [host] is -1; it must be above zero (and 1 more)"),
        ('name = "a"\ndescription = "b"\nhost = 5', "host is 5; it must be a table"),
        ('name = "a"\ndescription = "b"\n', "the file has no host; add a [host] table"),
        (HOST.replace("[host]", "accelerators = [5]\n[host]"),
         "[[accelerators]] number 1 is 5; it must be a table"),
        (HOST + GPUS.replace("[[accelerators]]", "[accelerators]"),
         "accelerators must be a list of tables; write [[accelerators]]"),
        (SMALL + GPUS, "two entries are called 'gpu'; give each [[accelerators]] its own name"),
        (SMALL
         + GPUS.replace('"gpu"\nkind', '"gpu0"\nkind').replace(COUNT, ""),
         "two devices are called 'gpu0'; give each [[accelerators]] its own name"),
        (SMALL + HOST_LINK, "gpu0 and host are linked twice; keep one [[links]] entry"),
    ],
)  # fmt: skip
def test_refused_as_a_whole(text: str, sentence: str, tmp_path: Path) -> None:
    assert refuse(text, tmp_path) == sentence


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlatformError, match=r"read: it is not text in UTF-8\.$"):
        load_platform(str(binary))


def test_unknown_platform_names_the_close_ones() -> None:
    with pytest.raises(PlatformError) as close:
        load_platform("epyc7763x2-4xa500")
    assert str(close.value).startswith(
        "there is no platform called 'epyc7763x2-4xa500'; did you mean epyc7763x2-4xa5000"
    )
    with pytest.raises(PlatformError) as far:
        load_platform("quantum")
    assert str(far.value) == (
        "there is no platform called 'quantum'; choose from local, "
        f"{', '.join(BUNDLED)}, or name a .toml file."
    )


#: This machine's processor is measured once.
probe_host = functools.cache(probing._probe_host)
#: By CUDA device: memory, multiprocessors, cache, FLOP/s, bandwidth, and seconds of a launch.
GPUS_HERE = (
    (16 * 2**30, 80, 6 * 2**20, 2e13, 8e11, 4e-6),
    (24 * 2**30, 108, 40 * 2**20, 3e13, 9e11, 7e-6),
)
#: Bytes a second between the host and each GPU, and between GPUs: forth, back, and of one byte.
COPIES = {(-1, 0): (2.5e10, 2.4e10, 1e5), (-1, 1): (1.2e10, 1.3e10, 5e4), (0, 1): (6e10, 5e10, 2e5)}


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CUDA device, and rates of the processor that are wrong and soon measured."""
    for name in ("GATHERED_BYTES", "AGGREGATED_BYTES"):
        monkeypatch.setattr(probing, name, 2**20)
    monkeypatch.setattr(probing, "UPDATED_ROWS", 2**8)
    monkeypatch.setattr(probing, "_probe_host", lambda seconds: probe_host(0.1))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, no_gpu: None) -> None:
    """Two unlike CUDA devices to describe, with rates in place of measurements on them."""

    def describe(index: int) -> SimpleNamespace:
        memory, processors, cache, *_ = GPUS_HERE[index]
        return SimpleNamespace(
            name=f"GPU {index}",
            total_memory=memory,
            multi_processor_count=processors,
            L2_cache_size=cache,
        )

    def copy(near: torch.device, far: torch.device, size: int, budget_s: float) -> float:
        ends = tuple(-1 if place.type == "cpu" else place.index for place in (near, far))
        forth, back, single = COPIES[min(ends), max(ends)]
        return single if size == 1 else forth if ends[0] < ends[1] else back

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", describe)
    for place, name in enumerate(("_matmul_rate", "_triad_rate", "_launch_seconds"), 3):
        monkeypatch.setattr(
            probing, name, lambda device, *_, place=place: GPUS_HERE[device.index][place]
        )
    monkeypatch.setattr(probing, "_copy_rate", copy)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("cache", [6e6, 3e7])
def test_the_cache_is_what_explains_how_long_rows_of_larger_tables_take(cache: float) -> None:
    """A row takes 1 s from the cache and 3 s from the memory. The last table has hardly any there;
    that the second may lie in the cache whole says nothing of a larger one."""
    tables = [2_000_000, 5_000_000, 10_000_000, 40_000_000, 200_000_000]
    seconds = [1.0 + 2.0 * (1.0 - min(1.0, cache / table)) for table in tables]
    assert probing.find_cache_bytes(tables, seconds) == pytest.approx(cache)


def test_a_cache_that_holds_every_table_is_as_large_as_the_system_says() -> None:
    tables = [2_000_000, 5_000_000, 10_000_000, 40_000_000, 200_000_000]
    assert probing.find_cache_bytes(tables, [1.0, 1.0, 1.0, 1.0, 3.0]) == 40_000_000
    assert probing.find_cache_bytes(tables, [1.0] * 5) == 40_000_000
    # And one of which nothing is found has at least the table that was taken to lie in it.
    assert probing.find_cache_bytes(tables, [1.0, 3.0, 3.0, 3.0, 3.0]) == 2_000_000


@pytest.mark.usefixtures("no_gpu")
def test_probe_measures_and_is_kept_as_local(cache: Path) -> None:
    threads = torch.get_num_threads()
    platform = probing.probe(seconds=0.2)
    assert torch.get_num_threads() == threads
    host = platform.host
    assert platform.name == "local"
    assert platform.accelerators == ()
    assert not platform.virtual
    assert host.cores >= 1
    assert host.hardware.memory_bytes > 2**28
    # Wide of any machine there is, and narrow enough to catch a wrong unit.
    memory, rates = host.memory, host.rates
    together = host.hardware.memory_bandwidth_bytes_per_s
    assert 1e8 < memory.core_bandwidth_bytes_per_s <= together < 1e14
    fresh = memory.fresh_bandwidth_bytes_per_s
    assert 1e7 < memory.core_fresh_bandwidth_bytes_per_s <= fresh < 1e13
    assert 1e8 < host.hardware.flops_per_s < 1e16
    assert 1e4 < host.rates.sampled_edges_per_s < 1e10
    assert 1e-8 < host.hardware.launch_s < 1e-2
    for curve in (rates.gather, rates.aggregate, rates.aggregate_backward, rates.update):
        assert curve is not None
        pairs = zip(curve.rates, curve.core_rates, strict=True)
        assert all(1e7 < core <= together < 1e14 for together, core in pairs)
    assert platform.sources["host.flops"].startswith("measured here by gnnbench platforms probe on")
    assert {platform.mark(key).kind for key in platform.sources} == {"measured"}

    path = local.save_local(platform)
    assert path == local_path()
    assert path == cache / "gnnbench" / "platforms" / socket.gethostname() / "local.toml"
    assert list(path.parent.iterdir()) == [path]
    assert load_platform("local") == platform
    assert list_platforms()[0].path == path
    # By its path it is a file like any other, and describes a machine that is not here.
    assert load_platform(str(path)).virtual


@pytest.mark.usefixtures("no_gpu")
def test_local_without_a_probe_assumes_and_says_so(tmp_path: Path) -> None:
    platform = load_platform("local")
    assert platform == load_platform("local")
    assert not platform.virtual
    assert platform.host.torch_device == "cpu"
    assert platform.host.cores == local.count_physical_cores()
    for key in ("flops", "memory_bandwidth", "core_bandwidth", "sampling", "launch"):
        assert platform.mark(f"host.{key}").kind == "assumed"
    assert platform.sources["host.cores"] == "the operating system"
    assert platform.mark("host.cores").kind == "measured"
    back = read(to_toml(platform), tmp_path)
    assert back.host == replace_fields(platform.host, virtual=True)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("probed", [True, False], ids=["probed", "assumed"])
def test_local_with_gpus(probed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if probed:
        local.save_local(probing.probe(seconds=0.1))
    platform = load_platform("local")
    assert not platform.virtual
    assert [gpu.torch_device for gpu in platform.accelerators] == ["cuda:0", "cuda:1"]
    facts = [
        (gpu.hardware.memory_bytes, gpu.cores, gpu.hardware.cache_bytes)
        for gpu in platform.accelerators
    ]
    assert facts == [known[:3] for known in GPUS_HERE]
    assert [gpu.name for gpu in platform.accelerators] == ["gpu0", "gpu1"]
    assert [link.name for link in platform.links] == ["host-gpu0", "host-gpu1", "gpu0-gpu1"]
    if not probed:
        assert platform.mark("gpu1.flops").kind == "assumed"
        return
    rates = [
        (gpu.hardware.flops_per_s, gpu.hardware.memory_bandwidth_bytes_per_s, gpu.hardware.launch_s)
        for gpu in platform.accelerators
    ]
    assert rates == [known[3:] for known in GPUS_HERE]
    # The slower direction, and the time of a one-byte copy.
    assert [link.bandwidth_bytes_per_s for link in platform.links] == [2.4e10, 1.2e10, 5e10]
    assert [link.latency_s for link in platform.links] == [1e-5, 2e-5, 5e-6]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(PlatformError) as error:
        load_platform("local")
    assert str(error.value) == (
        f"platform file {local_path()} describes gpu0, gpu1 and torch sees gpu0 here; "
        f"run gnnbench platforms probe --save again."
    )


def test_probe_needs_time() -> None:
    with pytest.raises(UsageError, match="give it more than 0"):
        probing.probe(seconds=0)


def test_unwritable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(GnnbenchError, match=r"cannot be written: there is no such folder\."):
        local.save_local(local.describe_unmeasured())


def test_something_else_goes_through_the_caches_before_rows_are_gathered(monkeypatch):
    done: list[str] = []
    monkeypatch.setattr(probing, "make_sweep", lambda: lambda: done.append("sweep"))
    monkeypatch.setattr(probing, "gather_rows", lambda *_, **__: done.append("gather"))
    assert probing._gather_rate(16, 1, 0.0) > 0.0
    assert done == ["gather", *["sweep", "gather"] * FEWEST_RUNS]


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("measure", "given", "amount"),
    [
        ("_matmul_rate", (CPU, 8), 2 * 8**3),
        # Three arrays of 64 floats.
        ("_triad_rate", (CPU,), 3 * 64 * 4),
        ("_fresh_rate", (), 1024 * 4),
        ("_copy_rate", (CPU, CPU, 100), 100),
        # 16 rows of 16 floats.
        ("_gather_rate", (16, 1), 16 * 16 * 4),
        # Rows by weights of 256 by 16, and the weights' gradient.
        ("_update_rate", (16, 1), 2 * (2 * 8 * 256 * 16)),
    ],
)
def test_a_rate_is_of_the_bytes_and_operations_of_what_is_timed(
    measure, given, amount, monkeypatch
):
    def count(work, amount, *_):
        work()
        return amount

    sizes = {"TRIAD_FLOATS": 64, "FRESH_FLOATS": 1024, "GATHERED_BYTES": 4096, "UPDATED_ROWS": 8}
    for name, size in sizes.items():
        monkeypatch.setattr(probing, name, size)
    for name in ("best_rate", "typical_rate"):
        monkeypatch.setattr(probing, name, count)
    monkeypatch.setattr(probing, "make_sweep", lambda: None)
    assert getattr(probing, measure)(*given, 1.0) == amount
