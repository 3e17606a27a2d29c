"""Five parts put together: which combinations work, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from gnnbench.machines.machine import DeviceKind, Platform
from gnnbench.parts.base import Part, Setting
from gnnbench.parts.communication import (
    Communication,
    HaloExchange,
    HostLoading,
    NoTransfer,
    PeerData,
    ShardExchange,
)
from gnnbench.parts.kernel import Kernel
from gnnbench.parts.layer_shape import LayerShape
from gnnbench.parts.memory import CacheMemory, DeviceMemory, Memory, OffloadingMemory
from gnnbench.parts.placement import Placement
from gnnbench.parts.sampler import FullGraphSampler, Loader, MiniBatchSampler, Sampler
from gnnbench.records import Mode, PartKind

#: Stages that a host runs at once: sampling, loading and training.
HOST_STAGES = 3
#: Hardware threads of a core, each of which a worker process of a loader may keep busy.
HARDWARE_THREADS = 2
#: Names of device kinds in messages.
KINDS: Mapping[DeviceKind, str] = {
    "cpu": "CPU",
    "gpu": "GPU",
    "fpga": "FPGA",
    "sparse": "sparse accelerator",
}


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """Five parts put together, ready to be checked and run.

    ``chosen`` holds, by kind of part, sentences about the options that the part settled.
    """

    sampler: Sampler
    placement: Placement
    communication: Communication
    memory: Memory
    kernel: Kernel
    chosen: Mapping[PartKind, tuple[str, ...]] = field(default_factory=dict)

    def all(self) -> tuple[Part, ...]:
        """Return the five parts."""
        return (self.sampler, self.placement, self.communication, self.memory, self.kernel)

    @property
    def mode(self) -> Mode:
        """The training mode that the sampler's units belong to."""
        return "mini-batch" if isinstance(self.sampler, MiniBatchSampler) else "full-graph"

    @property
    def by_features(self) -> bool:
        """Whether AGGREGATE is sharded by ranges of features, in all layers or in the first one."""
        return self.placement.by_features

    @property
    def in_pieces(self) -> bool:
        """Whether in-edges of a full graph's vertices come in pieces, round after round."""
        return isinstance(self.sampler, FullGraphSampler) and self.sampler.in_pieces

    @property
    def shares_rows(self) -> bool:
        """Whether rows are kept between rounds or come from peers."""
        one = self.communication
        return isinstance(one, HaloExchange) or (isinstance(one, HostLoading) and one.shares_rows)

    @property
    def ahead(self) -> int | None:
        """The number of units with rows on the device early; see ``HostLoading.ahead``."""
        one = self.communication
        return one.ahead if isinstance(one, HostLoading) else None

    @property
    def swaps(self) -> bool:
        """Whether intermediates wait on the host, with vertex data on the devices."""
        return isinstance(self.memory, DeviceMemory) and self.memory.swaps

    @property
    def stale(self) -> frozenset[PeerData]:
        """The data of its peers that a device may read from an earlier epoch."""
        one = self.communication
        return one.stale if isinstance(one, HaloExchange) else frozenset()

    def halo_sampling(self, platform: Platform) -> HaloExchange | None:
        """Return the communication if devices read a sample of their halos here, else None."""
        one, several = self.communication, len(self.placement.trainers(platform)) > 1
        return one if isinstance(one, HaloExchange) and one.samples and several else None

    @property
    def rounding(self) -> HostLoading | None:
        """The communication if it rounds features that cross, else None."""
        one = self.communication
        return one if isinstance(one, HostLoading) and one.rounds_to else None

    @property
    def scales_edges(self) -> bool:
        """Whether the sampler's scales multiply the edges."""
        return isinstance(self.sampler, MiniBatchSampler) and self.sampler.scales_edges

    def prefetch_stages(self, platform: Platform) -> Literal[0, 1, 2]:
        """Return the number of stages that prefetch mini-batch features on this platform.

        The stages of the sampler's loader, or of ``HostLoading.prefetch``, overlap work on
        different hardware. A host that trains alone samples and loads on the cores that it trains
        on. If it has fewer cores than stages, the stages would only wait for each other, so nothing
        is prefetched.
        """
        if not isinstance(self.communication, NoTransfer | HostLoading):
            return 0
        alone = self.placement.trainers(platform) == (platform.host,)
        if alone and platform.host.cores < HOST_STAGES:
            return 0
        if isinstance(self.sampler, MiniBatchSampler) and self.sampler.loader().prefetch:
            return self.sampler.loader().prefetch
        return self.communication.prefetch

    def wants_design_phase(self, platform: Platform) -> bool:
        """Return whether a few rounds before the run measure rates.

        Only a placement that asks for it gets them, and only on a real host that trains alone.
        """
        if platform.virtual or self.placement.trainers(platform) != (platform.host,):
            return False
        return self.placement.wants_design_phase()

    def other_maths(self, platform: Platform) -> str:
        """Return the design that makes the maths differ from the reference, in a word or two.

        Devices read ``stale`` rows of their peers, read a sample of their halos, or receive rounded
        features. Return an empty text where the maths are equal.
        """
        trainers = self.placement.trainers(platform)
        if self.stale and len(trainers) > 1:
            return "stale"
        if self.halo_sampling(platform) is not None:
            return "sampled halo"
        if self.rounding is not None and trainers != (platform.host,):
            return f"{self.rounding.rounds_to} features"
        return ""

    def refusal(self, setting: Setting) -> str | None:
        """Return the first reason why these parts cannot run together; None when they can."""
        mode = self.mode
        for part in self.all():
            if mode not in part.modes:
                only = " and ".join(sorted(part.modes))
                return (
                    f"{part.kind} {part.name!r} works for {only} training only, "
                    f"and sampler {self.sampler.name!r} makes {mode} units."
                )
        reason = self.placement.refuse_counts(setting.platform) or self._refuse_rows()
        if reason is None and mode == "full-graph":
            reason = self._refuse_full_graph(setting)
        for part in self.all():
            reason = reason or part.refuses(self, setting)
            if part is self.memory:
                reason = reason or _refuse_kept_rows(self, setting)
        reason = reason or self.refuse_devices(setting.platform)
        reason = reason or _refuse_loader(self, setting)
        return reason or self._refuse_split(setting) or self._refuse_scales(setting)

    def refuse_devices(self, platform: Platform) -> str | None:
        """Return why the kernel cannot run on the devices that a platform describes, or None."""
        return _refuse_kinds(self.kernel, self.placement, platform)

    def _refuse_rows(self) -> str | None:
        """Refuse host memory without host loading, and host loading without host memory."""
        memory, communication = self.memory, self.communication
        on_device = isinstance(memory, DeviceMemory)
        if on_device != isinstance(communication, HostLoading):
            return None
        if isinstance(communication, NoTransfer):
            return (
                f"communication {communication.name!r} moves nothing, but memory "
                f"{memory.name!r} keeps vertex data on the host; choose a communication "
                f"that transfers, or memory 'resident'."
            )
        where = "on the device" if on_device else "on the host"
        return (
            f"memory {memory.name!r} keeps vertex data {where}, where communication "
            f"{communication.name!r} has nothing to transfer; use one that serves it, "
            f"'none' or 'halo' on devices, 'vanilla' from the host."
        )

    def settle(self, setting: Setting) -> Bundle:
        """Return the bundle with every part's open options decided; call it after ``refusal``."""
        settled = self
        for part in self.all():
            chosen, notes = part.settle(settled, setting)
            known = {**settled.chosen, part.kind: notes}
            settled = replace(settled, chosen=known, **cast("dict[str, Any]", {part.kind: chosen}))
        return settled

    def begin(self, setting: Setting) -> Bundle:
        """Let every part settle and then begin a run; call it after ``refusal``.

        A sampler that sizes stand for draws nothing, so it does not begin.
        """
        settled = self.settle(setting)
        for part in settled.all():
            if setting.sizes is None or part is not settled.sampler:
                part.begin(setting)
        return settled

    def _refuse_split(self, setting: Setting) -> str | None:
        """Refuse to split rounds over devices if a sampler's draws depend on the split."""
        if not isinstance(self.sampler, MiniBatchSampler) or self.sampler.split_invariant:
            return None
        if setting.sizes is not None:
            return None
        count = len(self.placement.trainers(setting.platform))
        if count == 1:
            return None
        return (
            f"sampler {self.sampler.name!r} draws other neighbours for a share than for the whole "
            f"round, and placement {self.placement.name!r} splits rounds over {count} devices, "
            f"which would not be one large batch; choose placement 'single', or sampler "
            f"'neighbour'."
        )

    def _refuse_scales(self, setting: Setting) -> str | None:
        """Refuse scaled edges for layers other than the bundled ones that sum neighbours."""
        if not self.scales_edges or all(layer.traits.takes_scales for layer in setting.layers):
            return None
        return (
            f"sampler {self.sampler.name!r} scales edges so that sums over neighbours are on "
            f"average those of the whole graph, and model {setting.workload.model!r} "
            f"does other than sum rows; choose gcn, sage, gin or commnet, or leave edges as they "
            f"are."
        )

    def _refuse_full_graph(self, setting: Setting) -> str | None:
        count = len(self.placement.trainers(setting.platform))
        if isinstance(self.communication, NoTransfer) and count > 1:
            return (
                f"placement {self.placement.name!r} uses {count} devices, each with its own "
                f"vertex data, and communication {self.communication.name!r} moves nothing between "
                f"them; choose communication 'halo', or placement 'single'."
            )
        reason = _refuse_shards(self, setting) or _refuse_halo_sampling(self, setting)
        reason = reason or _refuse_pieces(self, setting)
        if reason is None and isinstance(self.memory, OffloadingMemory):
            reason = _refuse_layers(self.sampler, self.memory) or _refuse_intermediates(
                self.memory, setting.layers
            )
            reason = reason or self._refuse_kept(self.memory, setting)
        return reason

    def _refuse_kept(self, memory: OffloadingMemory, setting: Setting) -> str | None:
        """Refuse buffers that overwrite input rows of attention's backward pass."""
        policies = memory.list_intermediates(setting.layers)
        keeps = any(
            policy == "keep" and not layer.cacheable
            for policy, layer in zip(policies, setting.layers, strict=True)
        )
        if not (self.shares_rows and keeps):
            return None
        return (
            f"memory {memory.name!r} keeps what layers of model {setting.workload.model!r} need "
            f"for their backward pass, their input rows among it, and communication "
            f"{self.communication.name!r} puts those of the next round in their places; choose "
            f"communication 'neugraph' or 'vanilla', or memory 'hongtu'."
        )


def _refuse_loader(bundle: Bundle, setting: Setting) -> str | None:
    """Refuse options of a loader that contradict each other, or that nothing executes."""
    sampler, placement, platform = bundle.sampler, bundle.placement, setting.platform
    if not isinstance(sampler, MiniBatchSampler) or sampler.loader() == Loader():
        return None
    loader, trainers = sampler.loader(), placement.trainers(platform)
    if not platform.virtual:
        return refuse_priced("sampler", sampler.name, "options of its loader", platform)
    if loader.workers < 0:
        return f"sampler.workers is {loader.workers}; give 0 workers or more for each device."
    hosts = [platform.host_of(device) for device in trainers]
    most = max(1, min(HARDWARE_THREADS * host.cores // hosts.count(host) for host in hosts))
    if loader.workers > most:
        return (
            f"sampler.workers is {loader.workers:,} for each device, and its host has cores for "
            f"{most}, with {HARDWARE_THREADS} threads a core; give 0 to {most}."
        )
    others = [KINDS[device.kind] for device in trainers if device.kind != "gpu"]
    if loader.on_devices and others:
        where = "the host" if platform.host in trainers else f"devices of another kind: {others[0]}"
        return (
            f"sampler {sampler.name!r} is to draw on GPUs, and placement {placement.name!r} trains "
            f"on {where}; draw on the host, or train elsewhere."
        )
    unknown = [device.model for device in trainers if not device.rates.sampled_edges_per_s]
    if loader.on_devices and unknown and not sampler.library.device_sampled_edges_per_s:
        return (
            f"sampler {sampler.name!r} is to draw on {unknown[0]}, which has no rate of sampling; "
            f"give sampled_edges_per_s in the platform's file, or draw on the host."
        )
    if loader.on_devices and loader.workers:
        return (
            f"sampler.workers is {loader.workers}, and the accelerators draw; leave the workers "
            f"out, or draw on the host."
        )
    if loader.persistent and not loader.workers:
        return "sampler.persistent is true, and there are no workers; give sampler.workers too."
    communication = bundle.communication
    plain = isinstance(communication, NoTransfer | HostLoading) and not communication.prefetch
    if loader.prefetch and not plain:
        return (
            f"the loader of sampler {sampler.name!r} works ahead, and communication "
            f"{communication.name!r} decides that itself; choose communication 'vanilla', or "
            f"sampler.prefetch=0."
        )
    if placement.divides_threads:
        return (
            f"placement {placement.name!r} divides the host's threads and decides who draws; leave "
            f"the loader's options of sampler {sampler.name!r} out."
        )
    return None


def refuse_priced(kind: PartKind, name: str, what: str, platform: Platform) -> str | None:
    """Return why options that are priced alone cannot be set, or None on a described machine."""
    if platform.virtual:
        return None
    return (
        f"{kind} {name!r} has {what} set, which are priced and not executed, and the times of "
        f"platform {platform.name} are measured; leave them out, or name a described platform."
    )


def _refuse_shards(bundle: Bundle, setting: Setting) -> str | None:
    """Refuse shards by features without all-to-all, and the reverse."""
    sampler, placement, communication = bundle.sampler, bundle.placement, bundle.communication
    staged = isinstance(sampler, FullGraphSampler) and sampler.staged
    if not bundle.by_features:
        if isinstance(communication, ShardExchange):
            return (
                f"communication {communication.name!r} exchanges ranges of features for ranges "
                f"of vertices, and placement {placement.name!r} has no ranges of features; "
                f"choose placement 'mixgcn', or communication 'halo'."
            )
        if staged:
            return (
                f"sampler {sampler.name!r} leaves it to the placement to share out a stage, "
                f"and placement {placement.name!r} shards by vertices; choose placement "
                f"'mixgcn', or sampler 'full-graph'."
            )
        return None
    if len(placement.trainers(setting.platform)) > 1 and not staged:
        return (
            f"sampler {sampler.name!r} gives devices units of their own, and placement "
            f"{placement.name!r} shares every round's out by features; choose sampler 'mixgcn'."
        )
    if not isinstance(communication, ShardExchange):
        return (
            f"placement {placement.name!r} shards AGGREGATE by features and UPDATE by "
            f"vertices, and communication {communication.name!r} moves whole rows; choose "
            f"communication 'mixgcn', the all-to-all between the two."
        )
    for number, layer in enumerate(setting.layers, start=1):
        if not (layer.traits.featurewise and layer.cacheable):
            return (
                f"placement {placement.name!r} shards AGGREGATE by features, and in layer "
                f"{number} of model {setting.workload.model!r} it needs all features of both "
                f"ends of an edge at once, as attention and gates do; choose a model that "
                f"sums feature by feature (gcn, sage, gin or commnet), or a placement that "
                f"shards by vertices."
            )
    return None


def _refuse_pieces(bundle: Bundle, setting: Setting) -> str | None:
    """Refuse in-edges in pieces unless layers sum rows that come from the host."""
    sampler, memory, model = bundle.sampler, bundle.memory, setting.workload.model
    if not bundle.in_pieces:
        return None
    cut = f"sampler {sampler.name!r} cuts the in-edges of a vertex into pieces"
    if not isinstance(memory, OffloadingMemory):
        return (
            f"{cut}, whose rows come from the host one after the other, and memory "
            f"{memory.name!r} keeps them on the devices; choose memory 'neugraph', or sampler "
            f"'hongtu'."
        )
    if bundle.shares_rows:
        return (
            f"{cut}, and communication {bundle.communication.name!r} keeps rows of one for the "
            f"next in buffers; choose communication 'neugraph' or 'vanilla', or sampler "
            f"'hongtu'."
        )
    policies = memory.list_intermediates(setting.layers)
    for number, (layer, policy) in enumerate(zip(setting.layers, policies, strict=True), start=1):
        if not layer.cacheable:
            return (
                f"{cut}, and layer {number} of model {model!r} needs all of them at once, as "
                f"the softmax of attention does; choose a model that sums rows (gcn, sage, gin "
                f"or commnet), or sampler 'hongtu'."
            )
        if policy not in ("cache", "keep"):
            return (
                f"{cut}, and memory {memory.name!r} computes layer {number} again from its "
                f"input rows, which are not there at once; choose memory 'neugraph', or "
                f"'hongtu'."
            )
    return None


def _refuse_halo_sampling(bundle: Bundle, setting: Setting) -> str | None:
    """Refuse a sampled halo unless every layer sums it, in one block for all layers."""
    if bundle.halo_sampling(setting.platform) is None:
        return None
    communication, model = bundle.communication.name, setting.workload.model
    if _is_layered(bundle.sampler):
        return (
            f"communication {communication!r} leaves rows of the halo out at every layer, and "
            f"units of sampler {bundle.sampler.name!r} compute rows of others out of them; "
            f"choose communication 'halo', or a sampler whose units have one block."
        )
    if not all(layer.cacheable for layer in setting.layers):
        return (
            f"communication {communication!r} reads a sample of the halo, scaled so that sums "
            f"over neighbours stay what they are on average, and model {model!r} computes on "
            f"edges, as attention and gates do, where no scale makes up for what is left out; "
            f"choose a model that sums rows (gcn, sage, gin or commnet), or communication "
            f"'halo'."
        )
    return None


def _refuse_kinds(kernel: Kernel, placement: Placement, platform: Platform) -> str | None:
    """Refuse a described device of a kind that the kernel is not written for."""
    for device in placement.trainers(platform):
        if device.kind not in kernel.device_kinds:
            return (
                f"kernel {kernel.name!r} is written for {_name_kinds(kernel)}, and placement "
                f"{placement.name!r} trains on {device.name}, a {KINDS[device.kind]}; "
                f"choose kernel 'torch', or a placement on another device."
            )
    return None


def _name_kinds(kernel: Kernel) -> str:
    """Return the kinds of devices that a kernel is written for, worded for a message."""
    return " and ".join(f"{name}s" for kind, name in KINDS.items() if kind in kernel.device_kinds)


def _is_layered(sampler: Sampler) -> bool:
    return isinstance(sampler, FullGraphSampler) and sampler.layered


def _refuse_layers(sampler: Sampler, memory: Memory) -> str | None:
    """Refuse host-resident vertex data for units with a block for each layer."""
    if not _is_layered(sampler):
        return None
    return (
        f"units of sampler {sampler.name!r} have a block for each layer, and memory "
        f"{memory.name!r} brings each layer's rows from the host for one that serves all; "
        f"choose memory 'resident', or a sampler whose units have one block."
    )


def _refuse_intermediates(memory: OffloadingMemory, layers: tuple[LayerShape, ...]) -> str | None:
    """Refuse a policy for intermediates that does not suit the layer."""
    policies = memory.list_intermediates(layers)
    for number, (layer, policy) in enumerate(zip(layers, policies, strict=True), start=1):
        if (policy == "cache" and not layer.cacheable) or (policy == "offload" and layer.cacheable):
            return (
                f"memory {memory.name!r} would {policy!r} the intermediates of layer {number}; "
                f"only cacheable layers are cached, and only others are offloaded."
            )
    return None


def _refuse_kept_rows(bundle: Bundle, setting: Setting) -> str | None:
    """Refuse communications that keep rows on devices that swap or cache."""
    memory, communication = bundle.memory, bundle.communication
    drawn = bundle.halo_sampling(setting.platform) is not None
    if bundle.swaps and (bundle.stale or drawn):
        return (
            f"memory {memory.name!r} swaps what layers keep from forward to backward, and "
            f"communication {communication.name!r} keeps rows of peers over epochs or draws "
            f"them anew; choose communication 'halo', or memory 'resident'."
        )
    if isinstance(memory, CacheMemory) and bundle.shares_rows:
        return (
            f"memory {memory.name!r} caches rows on the devices, and communication "
            f"{communication.name!r} keeps others from round to round; choose "
            f"communication 'vanilla' or 'hyscale', or memory 'host'."
        )
    return None
