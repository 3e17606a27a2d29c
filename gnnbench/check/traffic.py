"""The check of traffic: a communication plans the rows that are needed, and they cross."""

from __future__ import annotations

from dataclasses import replace

from gnnbench.check import faults
from gnnbench.check.outcome import NonConformingError
from gnnbench.check.subject import Subject, World
from gnnbench.parts import (
    CacheMemory,
    Communication,
    HaloExchange,
    HostLoading,
    LoadingMemory,
    NoTransfer,
    TrafficSession,
)
from gnnbench.plugins import Registry
from gnnbench.records import CopyWork, IntArray, Round, RoundTraffic, RowsWork, count_moved


def check_bytes_add_up(subject: Subject) -> str:
    """Check rows needed = transferred + reused, and bytes counted = bytes that crossed links."""
    established, unmoved = [], []
    for case, world in subject.worlds():
        communication = world.bundle.communication
        if isinstance(communication, NoTransfer):
            _require_nothing(case, world, communication)
            unmoved.append(f"{case}: communication {communication.name!r} moves nothing")
            continue
        if not isinstance(communication, HostLoading | HaloExchange):
            _check_counted_bytes(case, world)
            established.append(f"{case}: what is counted crossed between shards")
            continue
        rows = dict.fromkeys(("needed", "from host", "reused", "from peers", "kept"), 0)
        previous = None
        rounds = world.visiting(world.rounds())
        session = communication.open(world.owner())
        for round_ in rounds:
            traffic = session.plan(round_, previous)
            # Rows of a device's own partition are there in every round.
            before = traffic if isinstance(communication, HaloExchange) else previous
            fault = faults.find_traffic_fault(
                round_,
                traffic,
                before,
                shares_rows=world.bundle.shares_rows,
                keeps_own=world.bundle.ahead is not None,
            )
            if fault is not None:
                raise NonConformingError(
                    f"{case}, round {round_.index}, communication {communication.name!r}, {fault}"
                )
            for fetch in traffic.fetches:
                rows["needed"] += len(fetch.needed)
                rows["from host"] += len(fetch.from_host)
                rows["reused"] += len(fetch.reused)
                rows["from peers"] += sum(len(peer.ids) for peer in fetch.from_peers)
                rows["kept"] += sum(len(peer.kept) for peer in fetch.from_peers)
            previous = traffic
        _check_counted_bytes(case, world)
        established.append(f"{case}: " + ", ".join(f"{rows[key]} rows {key}" for key in rows))
        if isinstance(world.bundle.memory, LoadingMemory | CacheMemory):
            established.append(_check_moved_rows(case, world))
    return "; ".join([*established, *unmoved])


def _require_nothing(case: str, world: World, communication: NoTransfer) -> None:
    """Check that a communication that says it moves no rows plans to move none."""
    previous, rounds = None, world.rounds()
    session = communication.open(world.owner())
    for round_ in rounds:
        previous = session.plan(round_, previous)
        for fetch in previous.fetches:
            moved = len(fetch.from_host) + sum(len(peer.ids) for peer in fetch.from_peers)
            if moved:
                raise NonConformingError(
                    f"{case}, round {round_.index}: communication {communication.name!r} says "
                    f"that it moves no rows, and plans {moved} to slot {fetch.slot}"
                )


def _check_counted_bytes(case: str, world: World) -> None:
    """Check that the bytes in a run's metrics are those that its spans carried over links."""
    links = {link.name for link in world.setting.platform.links}
    run = world.run()
    crossed = sum(
        count_moved(entry.span.work) for entry in run.timeline if entry.span.place in links
    )
    kinds = ("host_to_device", "device_to_host", "device_to_device", "all_to_all", "all_reduce")
    # The timeline is the last epoch's, and so is the last sample.
    counted = sum(run.metrics[f"{kind}_bytes"].samples[-1] for kind in kinds)
    if crossed != counted:
        raise NonConformingError(
            f"{case}: {crossed:,.0f} bytes crossed links in spans, {counted:,.0f} were counted"
        )


def _check_moved_rows(case: str, world: World) -> str:
    """Check that the rows crossed and reused in a mini-batch run are the planned ones."""
    recording, planned = _record_plans(world.subject.registry, world.bundle.communication)
    run = world.run(registry=recording)
    epoch = planned[-1 - max(entry.span.round for entry in run.timeline) :]
    fetches = [fetch for traffic in epoch for fetch in traffic.fetches]
    from_host = sum(len(fetch.from_host) for fetch in fetches)
    kept = sum(len(peer.kept) for fetch in fetches for peer in fetch.from_peers)
    due = from_host + kept + sum(len(fetch.reused) for fetch in fetches)
    crossed = sum(
        entry.span.work.rows
        for entry in run.timeline
        if entry.span.label == "host to device" and isinstance(entry.span.work, CopyWork | RowsWork)
    )
    setting = world.setting
    row_bytes = setting.dataset.num_features * setting.workload.itemsize
    reused = run.metrics["reused_bytes"].samples[-1] / row_bytes
    if crossed + reused != due or crossed > from_host:
        raise NonConformingError(
            f"{case}: of {due} rows that were to cross or to be reused {crossed} crossed and "
            f"{reused:g} were reused"
        )
    return f"in a run {crossed} rows crossed and {reused:g} were reused"


def _record_plans(registry: Registry, part: Communication) -> tuple[Registry, list[RoundTraffic]]:
    """Return a registry with a part that records its plans, and the list they are added to."""
    planned: list[RoundTraffic] = []

    class Recording(type(part)):  # type: ignore[misc]
        def open(self, owner: IntArray) -> TrafficSession:
            session: TrafficSession = super().open(owner)
            plan = session.plan

            def keep(round_: Round, previous: RoundTraffic | None) -> RoundTraffic:
                planned.append(plan(round_, previous))
                return planned[-1]

            session.plan = keep  # type: ignore[method-assign]
            return session

    parts = {**registry.parts, (part.kind, part.name): Recording}
    return replace(registry, parts=parts), planned
