"""Faults of a round, of its traffic and of a timeline, found by sets and sorting.

Each function returns a sentence about the first fault it finds, or None. They read records alone,
so a plugin's own tests may use them on hand-made records.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gnnbench.records import (
    Block,
    Dataset,
    Fetch,
    Graph,
    IntArray,
    Round,
    RoundTraffic,
    Scheduled,
    Unit,
)


def find_split_fault(
    shares: Sequence[tuple[int, int]], num_seeds: int, num_slots: int
) -> str | None:
    """Check that ``shares`` (slot, seeds) have ascending slots and add up to ``num_seeds``."""
    slots = [slot for slot, _ in shares]
    if any(seeds < 0 for _, seeds in shares):
        return f"a share of {min(seeds for _, seeds in shares)} seeds"
    if slots != sorted(set(slots)) or not set(slots) <= set(range(num_slots)):
        return f"shares for slots {slots}, which must ascend and lie in 0 to {num_slots - 1}"
    total = sum(seeds for _, seeds in shares)
    if total != num_seeds:
        return f"shares of {total} seeds in all for a round of {num_seeds}"
    return None


def join_pieces(rounds: Sequence[Round], pieces: int) -> list[Unit]:
    """Return all units of ``rounds``, with the ``pieces`` of a unit joined.

    Each group of ``pieces`` rounds in a row holds one unit a slot, split by in-edges. The pieces
    have the same destinations; if they differ, the pieces stay apart.
    """
    if pieces == 1:
        return [unit for round_ in rounds for unit in round_.units]
    units: list[Unit] = []
    for begin in range(0, len(rounds), pieces):
        blocks: dict[int, list[Block]] = {}
        for unit in (unit for round_ in rounds[begin : begin + pieces] for unit in round_.units):
            blocks.setdefault(unit.slot, []).append(unit.blocks[0])
        for slot, parts in blocks.items():
            first = parts[0].dst_ids
            same = all(np.array_equal(part.dst_ids, first) for part in parts)
            joined = [_join(parts)] if same else parts
            units += [Unit(slot, (block,)) for block in joined]
    return units


def _join(parts: Sequence[Block]) -> Block:
    """Return the block with the same destinations and the in-edges of all ``parts``."""
    own = parts[0].dst_ids
    rows = [np.repeat(np.arange(len(own)), np.diff(part.indptr)) for part in parts]
    row, source = np.concatenate(rows), np.concatenate([p.src_ids[p.indices] for p in parts])
    order = np.argsort(row, kind="stable")
    ids = np.concatenate((own, np.setdiff1d(source, own)))
    place = {vertex: number for number, vertex in enumerate(ids.tolist())}
    indices = np.array([place[vertex] for vertex in source[order].tolist()], dtype=np.int32)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(own)))))
    return Block(ids, len(own), indptr.astype(np.int64), indices)


def find_unit_fault(
    unit: Unit,
    graph: Graph,
    fanouts: Sequence[int] | None,
    *,
    drawn_once: bool = False,
    elsewhere: Collection[int] = (),
) -> str | None:
    """Check that a unit's blocks are pieces of the graph, fit together, and have all edges due.

    Each destination's edges are distinct in-edges of the graph. Block l, counted from the output
    layer, has min(``fanouts[l]``, degree) of them; 0 means all, as in a chunk of the full graph.
    With ``drawn_once``, a block above it may decide the number, for a sampler that draws for a
    vertex when it first meets it. ``fanouts`` None leaves the number to the sampler.

    A block reads the rows that the block below it computes, in order. Rows of vertices that other
    devices compute, ``elsewhere``, are left out of the block below.
    """
    for depth, block in enumerate(reversed(unit.blocks)):
        fault = _find_edge_fault(block, depth, graph)
        if fault is not None:
            return fault
        if fanouts is None:
            continue
        asked = fanouts[: depth + 1] if drawn_once else fanouts[depth : depth + 1]
        for vertex, drawn, degree in _count_edges(block, graph):
            due = sorted({min(fanout, degree) if fanout else degree for fanout in asked})
            if drawn not in due:
                return (
                    f"vertex {vertex} has {drawn} in-edges where {' or '.join(map(str, due))} are "
                    f"due, of a fan-out of {' or '.join(map(str, asked))} and {degree} neighbours"
                )
    for below, above in itertools.pairwise(unit.blocks):
        computed, read = below.dst_ids.tolist(), above.src_ids.tolist()
        if not elsewhere and computed != read:
            return "the destinations of a block are not the sources of the next, in order"
        if strangers := set(read).difference(computed, elsewhere):
            return f"row {min(strangers)} is read of a block that does not compute it"
        if spare := set(computed).difference(read):
            return f"row {min(spare)} is computed and not read by the next block"
    return None


def _find_edge_fault(block: Block, depth: int, graph: Graph) -> str | None:
    """Check that sources differ, and that edges are distinct in-edges of the graph."""
    source = block.src_ids.tolist()
    if len(set(source)) != len(source):
        return f"block {depth} from the output has a source row twice"
    for row, vertex in enumerate(block.dst_ids.tolist()):
        positions = block.indices[block.indptr[row] : block.indptr[row + 1]]
        drawn = block.src_ids[positions].tolist()
        neighbours = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist()
        if len(set(drawn)) != len(drawn) or not set(drawn) <= set(neighbours):
            return f"vertex {vertex} has an in-edge twice, or one that the graph does not have"
    return None


def _count_edges(block: Block, graph: Graph) -> Iterator[tuple[int, int, int]]:
    """Yield each destination's id, its number of in-edges in the block, and in the graph."""
    ids = block.dst_ids
    return zip(
        ids.tolist(), np.diff(block.indptr).tolist(), graph.find_degrees(ids).tolist(), strict=True
    )


def digest_arrays(dataset: Dataset) -> dict[str, str]:
    """Return a SHA-256 of each array of a dataset, by its name."""
    features = dataset.features
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "indptr": dataset.graph.indptr,
        "indices": dataset.graph.indices,
        "labels": dataset.labels,
        "train_mask": dataset.train_mask,
        "val_mask": dataset.val_mask,
        "test_mask": dataset.test_mask,
    }
    if isinstance(features, np.ndarray):
        arrays["features"] = features
    else:
        for name in ("data", "indices", "indptr"):
            arrays[f"features.{name}"] = getattr(features, name)
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


def find_traffic_fault(
    round_: Round,
    traffic: RoundTraffic,
    previous: RoundTraffic | None,
    *,
    shares_rows: bool = True,
    keeps_own: bool = False,
) -> str | None:
    """Check that rows needed = rows transferred + rows reused, for every unit of a round.

    With T the transition set of a slot (HongTu §5), T is the disjoint union of the rows from the
    host and the reused rows. Reused rows were in the slot's T of the round before. Every needed row
    is in the slot's own T or comes from one peer with the row in its T. It is kept only if it came
    from a peer in the round before. Without ``shares_rows`` no row is reused or comes from a peer.
    All then come from the host, except a unit's own rows if the part ``keeps_own``.
    """
    if [fetch.slot for fetch in traffic.fetches] != [unit.slot for unit in round_.units]:
        return (
            f"fetches for slots {[fetch.slot for fetch in traffic.fetches]} where the units are on "
            f"{[unit.slot for unit in round_.units]}"
        )
    before = {fetch.slot: fetch for fetch in previous.fetches} if previous else {}
    now = {fetch.slot: fetch for fetch in traffic.fetches}
    for unit, fetch in zip(round_.units, traffic.fetches, strict=True):
        fault = _find_fetch_fault(fetch, unit.input_ids, before.get(fetch.slot), now)
        others = np.setdiff1d(fetch.reused, unit.output_ids) if keeps_own else fetch.reused
        if fault is None and not shares_rows and (len(others) or fetch.from_peers):
            fault = (
                "rows are reused or come from a peer, but the part does not set shares_rows, so "
                "nothing is kept for that"
            )
        if fault is not None:
            return f"slot {fetch.slot}: {fault}"
    return None


def _find_fetch_fault(
    fetch: Fetch, input_ids: IntArray, before: Fetch | None, now: dict[int, Fetch]
) -> str | None:
    named = [
        ("needed", fetch.needed),
        ("from_host", fetch.from_host),
        ("reused", fetch.reused),
        *((f"from_peers[{peer.slot}]", peer.ids) for peer in fetch.from_peers),
        *((f"from_peers[{peer.slot}].kept", peer.kept) for peer in fetch.from_peers),
    ]
    for name, ids in named:
        if ids.tolist() != sorted(set(ids.tolist())):
            return f"{name} does not ascend, or holds an id twice"

    needed = set(fetch.needed.tolist())
    if needed != set(input_ids.tolist()):
        off = needed ^ set(input_ids.tolist())
        return f"needed and the unit's input differ by {len(off)} rows, the first is {min(off)}"
    from_host, reused = set(fetch.from_host.tolist()), set(fetch.reused.tolist())
    if both := from_host & reused:
        return f"row {min(both)} both crosses from the host and is reused"
    kept = set(before.transition.tolist()) if before else set()
    if never := reused - kept:
        return (
            f"row {min(never)} is reused, but the slot did not hold it after the round before "
            f"({len(never)} such rows)"
        )

    read = set(before.read_from_peers.tolist()) if before else set()
    reached = (from_host | reused) & needed
    for peer in fetch.from_peers:
        rows, stay = set(peer.ids.tolist()), set(peer.kept.tolist())
        if both := rows & stay:
            return f"row {min(both)} is both copied from slot {peer.slot} and kept"
        if never := stay - read:
            return (
                f"row {min(never)} is kept, but came from no peer for the round before "
                f"({len(never)} such rows)"
            )
        rows |= stay
        if peer.slot == fetch.slot or peer.slot not in now:
            return f"a peer fetch from slot {peer.slot}, which is no peer in this round"
        if absent := rows - set(now[peer.slot].transition.tolist()):
            return f"row {min(absent)} comes from slot {peer.slot}, which does not bring it in"
        if twice := rows & reached:
            return f"row {min(twice)} comes from slot {peer.slot} and from elsewhere too"
        if spare := rows - needed:
            return f"row {min(spare)} comes from slot {peer.slot} but the unit does not need it"
        reached |= rows
    if lost := needed - reached:
        return f"row {min(lost)} is needed and comes from nowhere ({len(lost)} such rows)"
    return None


def find_timeline_fault(timeline: Sequence[Scheduled], shared: Collection[str] = ()) -> str | None:
    """Check that exclusive resources run one span at a time, and that no span starts too early.

    A span starts after all spans that it waits for. On ``shared`` lanes several spans run at once,
    and take longer.
    """
    ended = {entry.span.id: entry.end_s for entry in timeline}
    holders: dict[str, list[Scheduled]] = {}
    for entry in timeline:
        name = f"span {entry.span.id} ({entry.span.label} on {entry.span.place})"
        times = (entry.start_s, entry.end_s, entry.span.seconds)
        if not all(math.isfinite(time) and time >= 0 for time in times):
            return f"{name} starts at {times[0]} s, ends at {times[1]} s and lasts {times[2]} s"
        longer_s = entry.end_s - entry.start_s - entry.span.seconds
        rounding_s = max(1e-12, 1e-9 * entry.span.seconds)
        slows = not set(shared).isdisjoint(entry.span.resources)
        if longer_s < -rounding_s or (longer_s > rounding_s and not slows):
            return f"{name} lasts {entry.span.seconds} s but stands for {times[1] - times[0]} s"
        for earlier in entry.span.after:
            if earlier not in ended:
                return f"{name} waits for span {earlier}, which is not on the timeline"
            if entry.start_s < ended[earlier]:
                return f"{name} starts before span {earlier}, which it waits for, has ended"
        for resource in set(entry.span.resources).difference(shared):
            holders.setdefault(resource, []).append(entry)
    for resource, entries in holders.items():
        # Spans of no length may share a moment with others, so they are skipped.
        entries = sorted(
            (entry for entry in entries if entry.end_s > entry.start_s),
            key=lambda entry: entry.start_s,
        )
        for one, other in itertools.pairwise(entries):
            if other.start_s < one.end_s:
                return f"spans {one.span.id} and {other.span.id} hold {resource} at the same time"
    return None
