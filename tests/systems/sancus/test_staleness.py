"""HongTu's and MixGCN's peers (HongTu, sections 2.4 and 7.1; MixGCN, section 5.1): what stale rows
change, what they save and hold.

m devices, partition i with the rows V_i; a copy is what a device has of a peer's rows.
"""

import io
import json
from functools import cache

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.autograd import Function

from gnnbench.errors import IncompatiblePartsError
from gnnbench.lowering.shards import Read
from gnnbench.machines import load_platform
from gnnbench.price.dry_run import DryRun
from gnnbench.report.comparison import print_comparison
from gnnbench.report.results.schema import dump_json, to_document
from tests.models.dense_training import train_on
from tests.systems import training
from tests.systems.training import (
    compare_on,
    cora_setting,
    epoch_s,
    list_before,
    losses,
    registry,
    sent,
)
from tests.uneven import on_cpus

ITEM = 8


@cache
def setting_for(model="gcn", devices=3):
    return on_cpus(training.setting_for(model, devices, epochs=7))


def bundle_of(name, **options):
    return training.bundle_of(name, communication=options)


def run(name, setting=None, **options):
    setting = setting or setting_for()
    return training.run(setting, name, **({"communication": options} if options else {}))


@cache
def partition_of(name):
    """Return each vertex's device, and what each device's unit reads, by the strategy's sampler."""
    cut = bundle_of(name).sampler.chunks(setting_for(), 3)
    (round_,) = cut.rounds
    needs = {unit.slot: np.sort(unit.input_ids) for unit in round_.units}
    return cut.owner, needs


def count_halo(name):
    owner, needs = partition_of(name)
    return sum(int((owner[ids] != reader).sum()) for reader, ids in needs.items())


def hidden_dims():
    features, *hidden = setting_for().workload.dims[:-1]
    return features, hidden


@pytest.mark.parametrize(("model", "devices"), [("gcn", 1), ("gcn", 3), ("gat", 2), ("gat", 4)])
@pytest.mark.parametrize(
    ("name", "fresh"),
    [
        ("sancus", {"staleness": 0}),
        ("sancus", {"metric": "embeddings", "change": 0}),
        ("distgnn", {"delay": 0}),
        ("pipegcn", {"staleness": 0}),
    ],
)
def test_without_staleness_it_is_full_graph_training(name, fresh, model, devices):
    setting = setting_for(model, devices)
    trace = run(name, setting, **fresh)
    assert losses(trace) == pytest.approx(losses(run("reference", setting)), rel=1e-9, abs=0)
    assert not any(span.label == "measure change" for e in trace.epochs for span in e.spans)


class Exchange(Function):
    """The exchange of rows and gradients between devices, some of them late.

    Forward, ``(V, f)`` rows become ``(m, V, f)`` copies; backward, gradients are added up.
    ``past`` has the rows and gradients of all epochs so far. ``seen`` and ``returned``,
    ``(m, V, epochs)``, are the share of each epoch in a device's copy and in its gradients.
    """

    @staticmethod
    def forward(ctx, h, past, seen, returned):
        ctx.past, ctx.returned = past["gradients"], torch.from_numpy(returned)
        past["rows"].append(h.detach().clone())
        return torch.einsum("mve,evf->mvf", torch.from_numpy(seen), torch.stack(past["rows"]))

    @staticmethod
    def backward(ctx, g):
        ctx.past.append(g.clone())
        counts = torch.einsum("mve,emvf->vf", ctx.returned, torch.stack(ctx.past))
        return counts, None, None, None


def weigh_copies(own, crossing, epoch, layer, what, late, decay):
    """Return the share of each epoch's row in every device's copy, ``(m, V, epochs)``.

    A device's own rows are of this epoch. Other rows crossed at least ``late`` epochs ago: the last
    of them has 1 - ``decay`` of the copy, and earlier ones share the rest in the same way.
    """
    share = np.zeros((*own.shape, epoch + 1))
    for earlier in range(epoch - late + 1):
        arrived = np.ones(own.shape, dtype=bool)
        if earlier or late:
            arrived = crossing(earlier, layer, what)
        share[arrived] *= decay
        share[arrived, earlier] = 1 - decay
    share[own] = np.arange(epoch + 1) == epoch
    return share


def ignore(epoch, layer, h):
    """Take no notice of the rows."""


def train_densely(owner, crossing, late=0, decays=(0.0, 0.0), watch=ignore):
    """Return the losses of a GCN on dense matrices, computed by devices with copies of rows.

    ``crossing(epoch, layer, what)``, bool ``(m, V)``, says which rows cross; they arrive ``late``
    epochs later. With ``late`` 0 all rows cross in the first epoch. ``decays`` are those of
    averages of rows and of gradients. ``watch`` sees a layer's rows before ``crossing`` is asked.
    """
    setting = setting_for()
    graph = setting.dataset.graph
    num, devices = graph.num_vertices, len(setting.platform.accelerators)
    dense = torch.eye(num, dtype=torch.float64)
    dense[np.repeat(np.arange(num), graph.degrees), graph.indices] = 1
    norm = dense.sum(1).rsqrt()
    dense = norm[:, None] * dense * norm
    own = owner == np.arange(devices)[:, None]
    past = [{"rows": [], "gradients": []} for _ in setting.layers]

    def forward(layers, epoch):
        h = torch.from_numpy(setting.dataset.features).double()
        for number, layer in enumerate(layers):
            watch(epoch, number, h.detach())
            weighed = [
                weigh_copies(own, crossing, epoch, number, what, late, decay)
                for what, decay in zip(("rows", "gradients"), decays, strict=True)
            ]
            seen = Exchange.apply(h, past[number], *weighed)
            # Row v of the product is computed by the device that owns v.
            aggregate = (dense @ seen)[torch.from_numpy(owner), torch.arange(num)]
            h = aggregate @ layer.weight + layer.bias
            h = torch.relu(h) if layer.activation else h
        return h

    return train_on(setting, forward)[0]


@pytest.mark.parametrize("stale_gradients", [False, True])
@pytest.mark.parametrize("staleness", [1, 2])
def test_sancus_reads_copies_up_to_its_bound_old(staleness, stale_gradients):
    owner, _ = partition_of("sancus")

    def crossing(epoch, layer, what):
        due = epoch % (staleness + 1) == 0 and layer > 0
        if what == "gradients" and not stale_gradients:
            due = True
        return np.full((3, len(owner)), due)

    trace = run("sancus", staleness=staleness, stale_gradients=stale_gradients)
    assert losses(trace) == pytest.approx(train_densely(owner, crossing), rel=1e-9)


class Changes:
    """Whose rows of a layer cross in an epoch: those that are further than ``bound`` of its length
    from what their device last sent of them. Features cross once, gradients always."""

    def __init__(self, owner, bound):
        self.owner, self.bound = owner, bound
        self.sent, self.due = {}, {}

    def watch(self, epoch, layer, h):
        for slot in range(3):
            rows = h.numpy()[self.owner == slot]
            last = self.sent.get((layer, slot))
            due = last is None or (
                layer > 0 and np.linalg.norm(rows - last) > self.bound * np.linalg.norm(last)
            )
            if due:
                self.sent[layer, slot] = rows
            self.due[epoch, layer, slot] = bool(due)

    def __call__(self, epoch, layer, what):
        due = [what == "gradients" or self.due[epoch, layer, slot] for slot in range(3)]
        return np.tile(np.array(due)[self.owner], (3, 1))

    def count(self, epoch, layer):
        sizes = np.bincount(self.owner, minlength=3)
        return sum(int(sizes[slot]) for slot in range(3) if self.due[epoch, layer, slot])


@cache
def adapt(bound):
    owner, _ = partition_of("sancus")
    changes = Changes(owner, bound)
    expected = train_densely(owner, changes, watch=changes.watch)
    return run("sancus", metric="embeddings", change=bound), changes, expected


#: Some of the 36 broadcasts after the first epoch are skipped, some are not; and all are.
BOUNDS = (0.05, 0.2, 1e3)


@pytest.mark.parametrize("bound", BOUNDS)
def test_sancus_broadcasts_what_has_changed_by_more_than_its_bound(bound):
    trace, changes, expected = adapt(bound)
    later = [due for (epoch, layer, _), due in changes.due.items() if epoch and layer]
    assert losses(trace) == pytest.approx(expected, rel=1e-9)
    assert (0 < sum(later) < len(later)) == (bound < 1)
    said = f"rows of a partition and layer crossed {sum(later)} of {len(later)} times"
    assert any(said in note for note in trace.notes)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_change_is_measured_and_told_and_what_was_sent_is_kept(bound):
    """Each device reads its rows twice, sends two numbers, and keeps what it broadcasts."""
    trace, changes, _ = adapt(bound)
    features, hidden = hidden_dims()
    num = len(changes.owner)
    for epoch, found in enumerate(trace.epochs):
        sent = sum(changes.count(epoch, layer + 1) * width for layer, width in enumerate(hidden))
        numbers = 3 * 2 * len(hidden) if epoch else 0
        crossing = 2 * (sent + num * sum(hidden)) + numbers
        crossing += 0 if epoch else 2 * num * features
        assert found.bytes["device_to_device"] == crossing * ITEM
        size_of = {
            label: sum(span.work.bytes for span in found.spans if span.label == label)
            for label in ("measure change", "keep sent rows", "tell change")
        }
        assert size_of["measure change"] == (2 * num * sum(hidden) * ITEM if epoch else 0)
        assert size_of["keep sent rows"] == sent * ITEM
        assert size_of["tell change"] == numbers * ITEM
    peaks = run("sancus").peak_bytes
    for slot in range(3):
        owned = int((changes.owner == slot).sum())
        assert trace.peak_bytes[f"gpu{slot}"] - peaks[f"gpu{slot}"] == owned * sum(hidden) * ITEM


def test_rows_are_read_and_aggregated_when_all_changes_are_known():
    spans = adapt(BOUNDS[0])[0].epochs[-1].spans
    at, seen = {span.id: span for span in spans}, set()
    for span in spans:
        if span.layer and span.label in ("aggregate forward", "device to device"):
            told = [s for s in spans if s.label == "tell change" and s.layer == span.layer]
            assert len(told) == 6
            assert {each.id for each in told} <= list_before(span, spans)
            measured = {number for each in told for number in each.after}
            assert {at[number].label for number in measured} == {"measure change"}
            assert len(measured) == 3
            seen.add((span.label, span.layer))
    assert seen >= {("aggregate forward", 1), ("aggregate forward", 2), ("device to device", 1)}


def test_a_plan_refuses_what_rests_on_values():
    bundle = bundle_of("sancus", metric="embeddings")
    with pytest.raises(
        IncompatiblePartsError, match=r"a plan computes no values\. Plan with a bound in"
    ):
        DryRun(bundle, setting_for())
    # A device alone sends nothing to anybody.
    (epoch,) = [epoch for epoch, _ in DryRun(bundle, setting_for(devices=1)).run_epochs(1)]
    assert not epoch.bytes["device_to_device"]


@pytest.mark.parametrize("staleness", [1, 2])
@pytest.mark.parametrize(
    ("smoothing", "decays"),
    [
        ("none", (0.0, 0.0)),
        ("rows", (0.95, 0.0)),
        ("gradients", (0.0, 0.95)),
        ("both", (0.95, 0.95)),
    ],
)
def test_pipegcn_reads_and_averages_rows_and_gradients_of_earlier_epochs(
    smoothing, decays, staleness
):
    """PipeGCN-F, -G and -GF: averages that start at zero, by default with its program's 0.95."""
    owner, _ = partition_of("pipegcn")

    def crossing(epoch, layer, what):
        return np.full((3, len(owner)), True)

    trace = run("pipegcn", staleness=staleness, smoothing=smoothing)
    expected = train_densely(owner, crossing, staleness, decays)
    assert losses(trace) == pytest.approx(expected, rel=1e-9)
    told = any("which decay by 0.95" in note for note in trace.notes)
    assert told == (smoothing != "none")


def test_smoothing_moves_and_holds_as_much_and_takes_longer():
    """An average reads twice and writes once what a copy writes; the rest is a run's without it."""
    plain, smooth = (run("pipegcn", staleness=1, smoothing=what) for what in ("none", "both"))
    assert smooth.peak_bytes == plain.peak_bytes
    assert [e.bytes for e in smooth.epochs] == [e.bytes for e in plain.epochs]
    halo, widths = count_halo("pipegcn"), setting_for().workload.dims[:-1]
    for label, more in (
        ("take rows that arrived", 2 * halo * sum(widths)),
        ("add stale gradients", 3 * halo * sum(widths[1:])),
    ):
        sizes = [
            sum(span.work.bytes for span in trace.epochs[-1].spans if span.label == label)
            for trace in (plain, smooth)
        ]
        assert sizes[1] - sizes[0] == more * ITEM
    assert epoch_s(smooth)[-1] > epoch_s(plain)[-1]
    # An average that keeps nothing is what arrived.
    kept_nothing = run("pipegcn", staleness=1, smoothing="both", decay_rate=0.0)
    assert losses(kept_nothing) == losses(plain)


@pytest.mark.parametrize("delay", [1, 2, 5])
def test_distgnn_sends_a_bin_of_each_peer_s_rows_an_epoch_and_reads_it_r_epochs_later(delay):
    owner, needs = partition_of("distgnn")

    def crossing(epoch, layer, what):
        mask = np.zeros((3, len(owner)), dtype=bool)
        for reader, ids in needs.items():
            for peer in range(3):
                mask[reader, ids[owner[ids] == peer][epoch % delay :: delay]] = True
        return mask

    trace = run("distgnn", delay=delay)
    expected = train_densely(owner, crossing, late=delay)
    assert losses(trace) == pytest.approx(expected, rel=1e-9)


def test_cora_is_learned_with_stale_rows():
    """PipeGCN, Sancus and DistGNN "sustain a reasonable level of accuracy" (section 2.4)."""
    comparison = compare_on(
        cora_setting("ecs-r5x16"),
        ("hongtu-im", "sancus", "distgnn", "pipegcn"),
        options={"placement": {"accelerators": "4", "nodes": "4"}},
    )
    fresh, *stale = comparison.runs
    assert fresh.equivalence.holds
    for row in stale:
        assert (row.status, row.other_maths, row.equivalence) == ("done", "stale", None)
        assert row.loss[-1] < 0.5 * row.loss[0]
        assert row.accuracy["test"] == pytest.approx(fresh.accuracy["test"], abs=0.03)
    # A reader is told of it.
    written = json.loads(dump_json(to_document(comparison)))["runs"]
    assert [entry["equivalence"] is None for entry in written] == [False, True, True, True]
    assert any("the maths differ from full-graph training" in note for note in written[1]["notes"])
    text = io.StringIO()
    print_comparison(comparison, Console(file=text, width=200), details=True)
    lines = [line for line in text.getvalue().splitlines() if "stale: maths differ" in line]
    assert {line.split()[0] for line in lines} == {"sancus", "distgnn", "pipegcn"}
    assert "loss by epoch" in text.getvalue()
    said = ", not ranked: sancus (stale: other maths); distgnn (stale: other maths); pipegcn (stale"
    assert said in text.getvalue()


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_a_broadcast_layer_costs_m_minus_1_copies_of_all_rows(devices):
    """(m - 1) |V| f bytes an element: V_i goes to m - 1 peers; as wide a gradient comes back."""
    setting, (features, hidden) = setting_for(devices=devices), hidden_dims()
    every = (devices - 1) * setting.dataset.graph.num_vertices * ITEM
    forward, backward = every * sum(hidden), every * sum(hidden)
    trace = run("sancus", setting, staleness=2)
    assert sent(trace) == [
        (every * features if epoch == 0 else 0) + (forward if epoch % 3 == 0 else 0) + backward
        for epoch in range(7)
    ]
    always = run("sancus", setting, staleness=0)
    assert sent(always) == [every * features + forward + backward] * 7
    for epoch in (*trace.epochs, *always.epochs):
        assert epoch.bytes["host_to_device"] == epoch.bytes["device_to_host"] == 0


def test_a_delay_of_r_costs_the_halo_once_in_r_epochs():
    widths = sum(setting_for().workload.dims[:-1]) + sum(setting_for().workload.dims[1:-1])
    moved, due = sent(run("distgnn", delay=3)), count_halo("distgnn") * widths * ITEM
    assert sum(moved[0:3]) == sum(moved[1:4]) == sum(moved[2:5]) == due
    assert moved[1] == moved[4]


def test_rows_of_pipegcn_cross_as_in_partition_parallelism_hidden_behind_computation():
    """PipeGCN "leverages historical node features to facilitate asynchronous communication"."""
    late, plain = run("pipegcn"), run("partition")
    assert sent(late) == sent(plain)
    for epoch in late.epochs:
        crossing = {span.id for span in epoch.spans if span.label == "device to device"}
        assert crossing
        waiting = [span for span in epoch.spans if crossing & set(span.after)]
        assert {span.label for span in waiting} <= {"device to device"}
    assert epoch_s(late)[-1] < epoch_s(plain)[-1]


@pytest.mark.parametrize(
    ("name", "option", "delay", "buffers"),
    [
        ("sancus", "staleness", 1, 0),
        ("distgnn", "delay", 2, 1),
        ("pipegcn", "staleness", 1, 1),
        ("pipegcn", "staleness", 2, 2),
    ],
)
def test_devices_hold_copies_and_gradients_of_earlier_epochs(name, option, delay, buffers):
    """Copies are kept, with a buffer for each epoch of a transfer; each bin is sent once."""
    features, hidden = hidden_dims()
    owner, needs = partition_of(name)
    fresh, stale = (run(name, **{option: value}).peak_bytes for value in (0, delay))
    held = []
    for slot, ids in needs.items():
        read = sum(int((owner[n] == slot).sum()) for peer, n in needs.items() if peer != slot)
        halo = int((owner[ids] != slot).sum())
        more = len(ids) * (features + sum(hidden))
        if buffers:
            more += read * sum(hidden)
        more += buffers * (halo * (features + sum(hidden)) + read * sum(hidden))
        assert stale[f"gpu{slot}"] - fresh[f"gpu{slot}"] == more * ITEM
        held.append(more)
    assert len(set(held)) > 1


def test_a_part_of_a_broadcast_is_refused():
    one = np.zeros(1, dtype=np.int64)
    read = Read(1, one, one, np.arange(3))
    with pytest.raises(ValueError, match="2 of 3 rows of slot 1 would cross"):
        read.pick(np.array([True, True, False]))


def test_distgnn_trains_on_the_host_where_no_nodes_are_described():
    placement = bundle_of("distgnn").placement
    platform = load_platform("epyc7543x4-4xa100")
    assert placement.trainers(platform) == (platform.host,)
    assert len(placement.trainers(load_platform("ecs-r5x16"))) == 16


@pytest.mark.parametrize("name", ["sancus", "pipegcn", "distgnn"])
def test_a_partition_alone_reads_nothing_late_and_says_nothing_of_it(name):
    alone, both = (run(name, setting_for(devices=devices)).notes for devices in (1, 3))
    assert any(" of peers " in note for note in both)
    assert not any(" of peers " in note for note in alone)
    late = "one node trains alone, so that nothing is late; platform ecs-r5x16 has 16"
    assert (late in alone) == (name == "distgnn")


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_distdgl_trains_seeds_where_their_partition_is_and_equals_the_reference(devices):
    setting = training.setting_for("sage", devices, 2)
    (row,) = compare_on(setting, ("distdgl",)).runs
    assert row.equivalence.max_relative_loss_error <= 1e-9
    session = registry().part("placement", "distdgl")().open(setting, [], 0)
    seeds = setting.dataset.train_ids[::-1]
    handed = session.share_out(seeds)
    assert [share.slot for share, _ in handed] == list(range(devices))
    assert [share.seeds for share, _ in handed] == [len(part) for _, part in handed]
    everyone = dict(session.share_out(np.arange(60)))
    for share, part in handed:
        (home,) = (ids for other, ids in everyone.items() if other.slot == share.slot)
        assert set(part) == set(seeds) & set(home)
        assert list(part) == sorted(part, reverse=True)
    assert len(everyone) == devices
