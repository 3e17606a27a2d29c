"""Five parts put together: which combinations work, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

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
from gnnbench.parts.memory import (
    CacheMemory,
    DeviceMemory,
    Intermediates,
    Memory,
    OffloadingMemory,
)
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
        if on_device:
            return (
                f"memory {memory.name!r} keeps vertex data on the devices, but communication "
                f"{communication.name!r} loads it from the host. Choose communication 'none' or "
                f"'halo', or a memory on the host."
            )
        return (
            f"memory {memory.name!r} keeps vertex data on the host, but communication "
            f"{communication.name!r} does not load it from there. Choose communication 'vanilla', "
            f"or memory 'resident'."
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
            f"sampler {self.sampler.name!r} draws other neighbours for a part of a round than for "
            f"the whole, so placement {self.placement.name!r} cannot split rounds over {count} "
            f"devices. Choose placement 'single', or sampler 'neighbour'."
        )

    def _refuse_scales(self, setting: Setting) -> str | None:
        """Refuse scaled edges for layers other than the bundled ones that sum neighbours."""
        if not self.scales_edges or all(layer.traits.takes_scales for layer in setting.layers):
            return None
        return (
            f"sampler {self.sampler.name!r} scales edges for sums over neighbours, but model "
            f"{setting.workload.model!r} does not sum rows. Choose gcn, sage, gin or commnet, or "
            f"do not scale edges."
        )

    def _refuse_full_graph(self, setting: Setting) -> str | None:
        count = len(self.placement.trainers(setting.platform))
        if isinstance(self.communication, NoTransfer) and count > 1:
            return (
                f"placement {self.placement.name!r} uses {count} devices, each with its own "
                f"vertex data, but communication {self.communication.name!r} moves nothing "
                f"between them. Choose communication 'halo', or placement 'single'."
            )
        reason = _refuse_shards(self, setting) or _refuse_halo_sampling(self, setting)
        if not isinstance(self.memory, OffloadingMemory):
            return reason or _refuse_pieces(self, setting)
        return (
            reason
            or _refuse_policies(self.memory, setting.layers)
            or _refuse_pieces(self, setting)
            or _refuse_layers(self.sampler, self.memory)
            or _refuse_intermediates(self.memory, setting.layers)
            or self._refuse_kept(self.memory, setting)
        )

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
            f"communication {self.communication.name!r} overwrites input rows that memory "
            f"{memory.name!r} keeps for the backward pass of model {setting.workload.model!r}. "
            f"Choose communication 'neugraph' or 'vanilla', or memory 'hongtu'."
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
        return f"sampler.workers is {loader.workers}. Give 0 workers or more for each device."
    hosts = [platform.host_of(device) for device in trainers]
    most = max(1, min(HARDWARE_THREADS * host.cores // hosts.count(host) for host in hosts))
    if loader.workers > most:
        return (
            f"sampler.workers is {loader.workers:,} for each device, but its host has cores for "
            f"{most}, with {HARDWARE_THREADS} threads a core. Give 0 to {most}."
        )
    others = [KINDS[device.kind] for device in trainers if device.kind != "gpu"]
    if loader.on_devices and others:
        where = "the host" if platform.host in trainers else f"devices of another kind: {others[0]}"
        return (
            f"sampler {sampler.name!r} is to draw on GPUs, but placement {placement.name!r} "
            f"trains on {where}. Draw on the host, or choose another placement."
        )
    unknown = [device.model for device in trainers if not device.rates.sampled_edges_per_s]
    if loader.on_devices and unknown and not sampler.library.device_sampled_edges_per_s:
        return (
            f"sampler {sampler.name!r} is to draw on {unknown[0]}, which has no sampling rate. "
            f"Give sampled_edges_per_s in the platform's file, or draw on the host."
        )
    if loader.on_devices and loader.workers:
        return (
            f"sampler.workers is {loader.workers}, but the accelerators draw. Leave the workers "
            f"out, or draw on the host."
        )
    if loader.persistent and not loader.workers:
        return "sampler.persistent is true, but there are no workers. Set sampler.workers too."
    communication = bundle.communication
    plain = isinstance(communication, NoTransfer | HostLoading) and not communication.prefetch
    if loader.prefetch and not plain:
        return (
            f"the loader of sampler {sampler.name!r} works ahead, but communication "
            f"{communication.name!r} decides what works ahead. Choose communication 'vanilla', or "
            f"sampler.prefetch=0."
        )
    if placement.divides_threads:
        return (
            f"placement {placement.name!r} divides the host's threads and decides who draws. "
            f"Leave out the loader's options of sampler {sampler.name!r}."
        )
    return None


def refuse_priced(kind: PartKind, name: str, what: str, platform: Platform) -> str | None:
    """Return why options that are priced alone cannot be set, or None on a described machine."""
    if platform.virtual:
        return None
    return (
        f"{kind} {name!r} has {what} set, which change modelled times only, but times on platform "
        f"{platform.name} are measured. Leave them out, or name a described platform."
    )


def _refuse_shards(bundle: Bundle, setting: Setting) -> str | None:
    """Refuse shards by features without all-to-all, and the reverse."""
    sampler, placement, communication = bundle.sampler, bundle.placement, bundle.communication
    staged = isinstance(sampler, FullGraphSampler) and sampler.staged
    if not bundle.by_features:
        if isinstance(communication, ShardExchange):
            return (
                f"communication {communication.name!r} exchanges ranges of features for ranges of "
                f"vertices, but placement {placement.name!r} has no ranges of features. Choose "
                f"placement 'mixgcn', or communication 'halo'."
            )
        if staged:
            return (
                f"sampler {sampler.name!r} lets the placement share out a stage, but placement "
                f"{placement.name!r} shards by vertices. Choose placement 'mixgcn', or sampler "
                f"'full-graph'."
            )
        return None
    if len(placement.trainers(setting.platform)) > 1 and not staged:
        return (
            f"placement {placement.name!r} shares out every round by features, but sampler "
            f"{sampler.name!r} gives each device separate units. Choose sampler 'mixgcn'."
        )
    if not isinstance(communication, ShardExchange):
        return (
            f"placement {placement.name!r} shards AGGREGATE by features and UPDATE by vertices, "
            f"but communication {communication.name!r} moves whole rows. Choose communication "
            f"'mixgcn', the all-to-all between the two."
        )
    for number, layer in enumerate(setting.layers, start=1):
        if not (layer.traits.featurewise and layer.cacheable):
            return (
                f"placement {placement.name!r} splits features over devices, but layer {number} "
                f"of model {setting.workload.model!r} needs all features of an edge at once. "
                f"Choose gcn, sage, gin or commnet, or a placement that shards by vertices."
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
            f"{cut}, which come from the host one by one, but memory {memory.name!r} keeps rows "
            f"on the devices. Choose memory 'neugraph', or sampler 'hongtu'."
        )
    if bundle.shares_rows:
        return (
            f"{cut}, but communication {bundle.communication.name!r} keeps rows of one piece for "
            f"the next. Choose communication 'neugraph' or 'vanilla', or sampler 'hongtu'."
        )
    policies = memory.list_intermediates(setting.layers)
    for number, (layer, policy) in enumerate(zip(setting.layers, policies, strict=True), start=1):
        if not layer.cacheable:
            return (
                f"{cut}, but layer {number} of model {model!r} needs all in-edges at once. Choose "
                f"gcn, sage, gin or commnet, or sampler 'hongtu'."
            )
        if policy not in ("cache", "keep"):
            return (
                f"{cut}, but memory {memory.name!r} recomputes layer {number} from all input rows "
                f"at once. Choose memory 'neugraph' or 'hongtu'."
            )
    return None


def _refuse_halo_sampling(bundle: Bundle, setting: Setting) -> str | None:
    """Refuse a sampled halo unless every layer sums it, in one block for all layers."""
    if bundle.halo_sampling(setting.platform) is None:
        return None
    communication, model = bundle.communication.name, setting.workload.model
    if _is_layered(bundle.sampler):
        return (
            f"communication {communication!r} leaves out halo rows at every layer, but units of "
            f"sampler {bundle.sampler.name!r} compute remote rows from them. Choose communication "
            f"'halo', or a sampler whose units have one block."
        )
    if not all(layer.cacheable for layer in setting.layers):
        return (
            f"communication {communication!r} samples the halo and scales sums, but model "
            f"{model!r} computes on edges, which cannot be scaled. Choose gcn, sage, gin or "
            f"commnet, or communication 'halo'."
        )
    return None


def _refuse_kinds(kernel: Kernel, placement: Placement, platform: Platform) -> str | None:
    """Refuse a described device of a kind that the kernel is not written for."""
    for device in placement.trainers(platform):
        if device.kind not in kernel.device_kinds:
            return (
                f"kernel {kernel.name!r} is written for {_name_kinds(kernel)}, but placement "
                f"{placement.name!r} trains on {device.name}, a {KINDS[device.kind]}. Choose "
                f"kernel 'torch', or a placement on another device."
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
        f"units of sampler {sampler.name!r} have a block for each layer, but memory "
        f"{memory.name!r} loads rows from the host for one block. Choose memory 'resident', or a "
        f"sampler whose units have one block."
    )


def _refuse_policies(memory: OffloadingMemory, layers: tuple[LayerShape, ...]) -> str | None:
    """Refuse policies that are unknown, or that are not one for each layer."""
    policies, known = memory.list_intermediates(layers), get_args(Intermediates)
    if len(policies) == len(layers) and set(policies) <= set(known):
        return None
    return (
        f"memory {memory.name!r} has the policies {', '.join(map(repr, policies))} for "
        f"{len(layers)} layers. Return one of {', '.join(known)} for each layer."
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
            f"memory {memory.name!r} swaps what layers keep, but communication "
            f"{communication.name!r} keeps rows of peers over epochs or draws them anew. Choose "
            f"communication 'halo', or memory 'resident'."
        )
    if isinstance(memory, CacheMemory) and bundle.shares_rows:
        return (
            f"memory {memory.name!r} caches rows on the devices, but communication "
            f"{communication.name!r} keeps other rows there between rounds. Choose communication "
            f"'vanilla' or 'hyscale', or memory 'host'."
        )
    return None
