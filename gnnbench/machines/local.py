"""The platform ``local``: this machine as probed, else as the system describes it."""

from __future__ import annotations

import contextlib
import dataclasses
import platform as operating_system
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import psutil
import torch

from gnnbench.constants import MEASURED, Constant, Mark
from gnnbench.errors import GnnbenchError, PlatformError
from gnnbench.host.cores import count_cores, memory_bytes
from gnnbench.host.files import explain, publish
from gnnbench.kernels.pages import count_kept_bytes
from gnnbench.machines.describe import LOCAL, local_path
from gnnbench.machines.files import read_platform
from gnnbench.machines.machine import Device, Hardware, Link, MemoryRates, Platform, TrainerRates
from gnnbench.machines.show import to_toml
from gnnbench.machines.tables import replace_fields

#: Assumed rates of a machine that was not probed.
CORE_FLOPS: Annotated[float, Constant("FLOP/s", "assumed", "order of magnitude")] = 5e10
CORE_BYTES_PER_S: Annotated[float, Constant("B/s", "assumed", "order of magnitude")] = 1e10
HOST_BYTES_PER_S: Annotated[float, Constant("B/s", "assumed", "of a whole host, at most")] = 2e11
CORE_EDGES_PER_S: Annotated[float, Constant("edges/s", "assumed", "order of magnitude")] = 2e7
HOST_LAUNCH_S: Annotated[float, Constant("s", "assumed", "order of magnitude")] = 5e-6
GPU_LANES: Annotated[int, Constant("", "assumed", "of a multiprocessor, most of NVIDIA's")] = 128
GPU_CLOCK_HZ: Annotated[float, Constant("Hz", "assumed", "order of magnitude")] = 1.5e9
GPU_BYTES_PER_S: Annotated[float, Constant("B/s", "assumed", "of a multiprocessor")] = 1e10
GPU_LAUNCH_S: Annotated[float, Constant("s", "assumed", "order of magnitude")] = 1e-5
PCIE_BYTES_PER_S: Annotated[float, Constant("B/s", "assumed", "PCIe 3.0 x16, effective")] = 1.2e10
#: The source of the size from which arrays are mapped here.
KEPT = "freed memory that gnnbench keeps in a measured process"
PCIE_LATENCY_S: Annotated[float, Constant("s", "assumed", "one copy call")] = 1e-5


def load_local() -> Platform:
    """Return ``local`` as last probed, else as the operating system describes it.

    The latter has assumed rates.

    Raises ``PlatformError`` if the probed description is broken or has other GPUs than torch.
    """
    path = local_path()
    if not path.is_file():
        return describe_unmeasured()
    platform = read_platform(path)
    here = [f"gpu{index}" for index in range(count_gpus())]
    described = [device.name for device in platform.accelerators]
    if described != here:
        raise PlatformError(
            f"platform file {path} describes {', '.join(described) or 'no accelerator'} and torch "
            f"sees {', '.join(here) or 'none'} here; run gnnbench platforms probe --save again."
        )
    return dataclasses.replace(
        platform,
        host=replace_fields(platform.host, virtual=False, mapped_from_bytes=count_kept_bytes()),
        sources={**platform.sources, "host.mapped_from": KEPT},
        marks={**platform.marks, "host.mapped_from": MEASURED},
        accelerators=tuple(
            dataclasses.replace(device, virtual=False, torch_device=f"cuda:{index}")
            for index, device in enumerate(platform.accelerators)
        ),
    )


def save_local(platform: Platform) -> Path:
    """Write a probed platform as ``local``, atomically; return the file.

    Raises ``GnnbenchError`` when the disk refuses.
    """
    path = local_path()
    text = "# Written by gnnbench platforms probe; run it again after a change of hardware.\n\n"
    text += to_toml(platform)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with publish(path) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise GnnbenchError(f"platform file {path} cannot be written: {explain(error)}.") from error
    return path


def describe_unmeasured() -> Platform:
    """Describe this machine from the operating system and torch, without running anything.

    Rates are assumed from the number of cores, equal at every call; each source says so.
    """
    assumed = "{}, not measured; gnnbench platforms probe --save does"
    cores = count_physical_cores()
    host = Device(
        name="host",
        kind="cpu",
        model=cpu_model(),
        hardware=Hardware(
            flops_per_s=CORE_FLOPS * cores,
            memory_bandwidth_bytes_per_s=min(CORE_BYTES_PER_S * cores, HOST_BYTES_PER_S),
            memory_bytes=memory_bytes(),
            launch_s=HOST_LAUNCH_S,
        ),
        cores=cores,
        memory=MemoryRates(
            core_bandwidth_bytes_per_s=CORE_BYTES_PER_S, mapped_from_bytes=count_kept_bytes()
        ),
        rates=TrainerRates(sampled_edges_per_s=CORE_EDGES_PER_S),
        virtual=False,
    )
    sources = {
        "host.cores": "the operating system",
        "host.memory": "the operating system",
        "host.mapped_from": KEPT,
        "host.flops": assumed.format("50 GFLOP/s a core"),
        "host.memory_bandwidth": assumed.format("10 GB/s a core, 200 GB/s at most"),
        "host.core_bandwidth": assumed.format("one core's share"),
        "host.sampling": assumed.format("order of magnitude of a native sampler"),
        "host.launch": assumed.format("one small tensor operation"),
    }
    gpus: list[Device] = []
    links: list[Link] = []
    for index in range(count_gpus()):
        gpu = _assume_gpu(index)
        sources |= {
            f"{gpu.name}.cores": "CUDA: multiprocessors",
            f"{gpu.name}.memory": "CUDA",
            f"{gpu.name}.cache": "CUDA: its second level",
            f"{gpu.name}.flops": assumed.format("128 lanes a multiprocessor at 1.5 GHz"),
            f"{gpu.name}.memory_bandwidth": assumed.format("10 GB/s a multiprocessor"),
            f"{gpu.name}.launch": assumed.format("one kernel launched from PyTorch"),
        }
        for name in ("host", *(device.name for device in gpus)):
            ends = (name, gpu.name)
            links.append(Link("-".join(ends), ends, PCIE_BYTES_PER_S, PCIE_LATENCY_S))
        gpus.append(gpu)
    for link in links:
        sources[f"{link.name}.bandwidth"] = assumed.format("PCIe 3.0 x16, effective")
        sources[f"{link.name}.latency"] = assumed.format("one copy call")
    known = [f"{device.name}.{key}" for device in (host, *gpus) for key in ("cores", "memory")]
    known += ["host.mapped_from", *(f"{gpu.name}.cache" for gpu in gpus)]
    return assemble(host, gpus, links, sources, dict.fromkeys(known, MEASURED))


def _assume_gpu(index: int) -> Device:
    """Return a CUDA device with rates assumed from the number of its multiprocessors."""
    properties = torch.cuda.get_device_properties(index)
    multiprocessors = properties.multi_processor_count
    return Device(
        name=f"gpu{index}",
        kind="gpu",
        model=properties.name,
        hardware=Hardware(
            flops_per_s=GPU_LANES * 2 * GPU_CLOCK_HZ * multiprocessors,
            memory_bandwidth_bytes_per_s=GPU_BYTES_PER_S * multiprocessors,
            memory_bytes=properties.total_memory,
            launch_s=GPU_LAUNCH_S,
            cache_bytes=second_level_bytes(index),
        ),
        cores=multiprocessors,
        virtual=False,
        torch_device=f"cuda:{index}",
    )


def assemble(
    host: Device,
    gpus: list[Device],
    links: list[Link],
    sources: Mapping[str, str],
    marks: Mapping[str, Mark],
) -> Platform:
    """Return the platform ``local`` from its probed or assumed devices."""
    summary = [f"{host.model}, {host.cores} cores", *(gpu.model for gpu in gpus)]
    return Platform(
        name=LOCAL,
        description=f"this machine: {'; '.join(summary)}",
        host=host,
        accelerators=tuple(gpus),
        links=tuple(links),
        sources=sources,
        marks=marks,
    )


# --------------------------------------------------------------------------- what there is


def count_physical_cores() -> int:
    """Return the number of physical cores that this process may keep busy."""
    allowed = count_cores()
    return int(min(allowed, psutil.cpu_count(logical=False) or allowed))


def cache_bytes() -> int:
    """Return the bytes of a core's last-level cache; 0 if Linux does not state them."""
    sizes = [0]
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(index.read_text().strip().removesuffix("K")) * 1024)
    return max(sizes)


def second_level_bytes(index: int) -> int:
    """Return the bytes of a CUDA device's second-level cache; 0 if torch states none."""
    return int(getattr(torch.cuda.get_device_properties(index), "L2_cache_size", 0))


def cpu_model() -> str:
    """Return the name of this machine's processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return operating_system.processor() or operating_system.machine() or "unknown processor"


def count_gpus() -> int:
    """Return the number of CUDA devices that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
