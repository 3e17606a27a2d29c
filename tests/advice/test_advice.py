"""Advice: what is planned, searched and ranked, and what would change it."""

import itertools
import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gnnbench import comparison, datasets
from gnnbench.advice import Question, advise, find_cheapest, make_matrix
from gnnbench.advice.advise import find_interval
from gnnbench.advice.documents import describe_question
from gnnbench.advice.matrix import find_front
from gnnbench.advice.pricing import LINK_METRICS, Pricer, read_metric
from gnnbench.advice.questions import count_swaps
from gnnbench.advice.recall import WatchedCapacity
from gnnbench.advice.search import Effort, Search, choose_effort, find_space
from gnnbench.advice.sentences import SAME, compare_rows, describe_row
from gnnbench.advice.tables import make_table, summarise
from gnnbench.advice.variations import (
    list_variations,
    with_device_memory,
    with_host_links,
    without_device,
)
from gnnbench.comparison import Request, make_setting
from gnnbench.comparison.planned import plan_run
from gnnbench.datasets import partitioning
from gnnbench.datasets.partitioning import edge_cut
from gnnbench.errors import IncompatiblePartsError, UsageError
from gnnbench.machines import load_platform
from gnnbench.machines.tables import replace_fields
from gnnbench.parts import Bundle, list_tried, option_fields, parse_option
from gnnbench.plugins import load
from gnnbench.price import model_error
from gnnbench.price.model_error import FEWEST_GROUPS, ModelError, describe_errors, find_run_path
from gnnbench.records import BYTE_KINDS, Graph, Parts, Workload
from gnnbench.units import format_si
from tests.advice.advised import check_choices, find_fault, make_question

FEW = Effort(plans=16, tuned=1, finals=3)
#: Metrics of what crosses a link.
CROSSING = re.compile(r"(host|device)_to_(host|device)_bytes|all_(to_all|reduce)_bytes")


@pytest.fixture(scope="module")
def registry():
    return load(())


@pytest.fixture(scope="module")
def graph():
    return datasets.load("sbm:vertices=400,edges=3k,features=24,classes=4")


@pytest.fixture(scope="module")
def ask(registry, graph):
    def make(machine="epyc7763x2-4xa5000", **changed):
        workload = Workload(
            model=changed.pop("model", "gcn"),
            dims=(graph.num_features, 16, graph.num_classes),
            epochs=1,
            batch_size=48,
            fanouts=(5, 4),
            seed=0,
            threads=1,
        )
        return Question(graph, workload, load_platform(machine), registry, **changed)

    return make


@pytest.fixture(scope="module")
def found(ask):
    return advise(ask(modes=("full-graph",)), vary=False, effort=FEW)


@pytest.fixture(scope="module")
def full(ask):
    pricer = Pricer(ask())
    return pricer, find_space(pricer, "full-graph")


HONGTU = Parts("hongtu", "hongtu", "hongtu", "hongtu", "torch")


@pytest.mark.parametrize(
    ("mode", "parts", "others"),
    [
        ("full-graph", HONGTU, {"communication": "vanilla"}),
        ("full-graph", HONGTU, {"sampler": "hongtu-im"}),
        (
            "mini-batch",
            Parts("neighbour", "hyscale", "hyscale", "host", "torch"),
            {"placement": "data-parallel"},
        ),
    ],
)
def test_what_is_recalled_changes_no_figure(ask, mode, parts, others):
    question = ask()
    pricer = Pricer(question)
    request = Request((), question.dataset, question.workload, question.platform)
    setting = make_setting(request)
    for each in (parts, replace(parts, **others), replace(parts, **others)):
        row = question.make_row(mode, each)
        ours = Pricer(question, pricer.recall).plan(row)
        alone = plan_run(request, row, setting, question.registry)
        assert ours.status == "done"
        assert ours.metrics == alone.metrics
        assert ours.stages == alone.stages


def test_a_changed_platform_is_not_told_what_was_recalled_of_another(ask):
    question = ask()
    pricer = Pricer(question)
    row = question.make_row("full-graph", HONGTU)
    least = (("sampler", "chunks_per_partition", "0"),)
    row = replace(row, options=least)
    usual = pricer.plan(row)
    size = int(0.6 * read_metric(usual, "peak_device_bytes"))
    small = replace(question, platform=with_device_memory(question.platform, size))
    ours = Pricer(small, pricer.recall).plan(row)
    alone = Pricer(small).plan(row)
    assert ours.metrics == alone.metrics
    assert read_metric(ours, "peak_device_bytes") <= size


def test_partitions_are_remembered_within_and_forgotten_after(monkeypatch, graph):
    made = []
    whole = edge_cut.partition_metis

    def count(*given):
        made.append(given)
        return whole(*given)

    monkeypatch.setattr(edge_cut, "partition_metis", count)
    first = partitioning.partition(graph.graph, 2, "metis", 0)
    with partitioning.remember_partitions():
        for _ in range(2):
            found = partitioning.partition(graph.graph, 2, "metis", 0)
            assert np.array_equal(found, first)
            found[:] = -1  # whoever has asked may write into it
        partitioning.partition(graph.graph, 3, "metis", 0)
    partitioning.partition(graph.graph, 2, "metis", 0)
    assert [(given[1], given[2]) for given in made] == [(2, 0), (2, 0), (3, 0), (2, 0)]


def test_a_few_rounds_stand_for_an_epoch_of_mini_batches_alone(ask):
    pricer = Pricer(replace(ask(), workload=replace(ask().workload, batch_size=8)))
    parts = Parts("neighbour", "data-parallel", "vanilla", "host", "torch")
    row = pricer.question.make_row("mini-batch", parts)
    short, whole = pricer.plan(row, short=True), pricer.plan(row)
    assert short.work.updates == 4
    assert whole.work.updates > 4
    full = pricer.question.make_row("full-graph", HONGTU)
    assert pricer.plan(full, short=True) is not None
    planned = pricer.planned
    pricer.plan(full)
    assert pricer.planned == planned


def test_only_rows_of_one_law_and_of_the_reference_maths_are_ranked(full):
    pricer, space = full
    other_maths = [p for p in space.ranked if p.communication in ("pipegcn", "sancus", "bnsgcn")]
    assert all(pricer.is_idle(parts) for parts in other_maths)
    for why in ("stale", "sampled halo"):
        assert any(each.startswith(why) for each in space.unranked)
    batches = find_space(pricer, "mini-batch")
    assert "uniform" in batches.law
    assert not {p.sampler for p in batches.ranked} & {"saint", "layerwise"}
    assert any("GraphSAINT" in why for why in batches.unranked)
    assert any("float16" in why for why in batches.unranked)


def test_parts_that_are_kept_and_strategies_that_are_named_bound_what_is_combined(ask):
    kept = ask(kept=(("kernel", "torch"), ("sampler", "neighbour")))
    assert kept.list_combinations("full-graph") == ()
    assert {p.kernel for p in kept.list_combinations("mini-batch")} == {"torch"}
    two = ask(strategies=("hongtu", "hongtu-im"))
    assert set(two.list_parts("full-graph")["communication"]) == {"hongtu", "halo"}
    assert two.list_combinations("mini-batch") == ()


def test_a_combination_is_called_after_the_strategy_that_it_is_most_like(ask):
    question = ask()
    assert question.name_parts("full-graph", HONGTU) == ("hongtu", "hongtu")
    swapped = replace(HONGTU, communication="vanilla")
    assert question.name_parts("full-graph", swapped) == ("hongtu", "hongtu·vanilla")
    assert count_swaps(HONGTU, swapped) == 1


def test_every_value_that_is_tried_is_one_that_its_option_takes(registry):
    tried = 0
    for part in registry.parts.values():
        for name, field in option_fields(part).items():
            values = list_tried(part, name)
            tried += bool(values)
            if values:
                assert str(field.default).lower() in [value.lower() for value in values], name
            for value in values:
                parse_option(part, name, value)
    assert tried >= 10


def test_the_first_choice_is_no_worse_than_any_strategy_as_it_comes(ask):
    question = ask()
    pricer = Pricer(question)
    answers = advise(question, vary=False, effort=Effort(plans=40, tuned=1, finals=3)).answers
    assert {answer.mode for answer in answers} == {"full-graph", "mini-batch"}
    for answer in answers:
        times = [choice.epoch_s for choice in answer.choices if choice.fits]
        assert times == sorted(times)
        laws = set(find_space(pricer, answer.mode).ranked)
        for mode, name, parts in question.list_bundles():
            if mode == answer.mode and parts in laws:
                run = pricer.plan(question.make_row(mode, parts))
                assert answer.best.epoch_s <= read_metric(run, "epoch_time") * (1 + 1e-9), name


def test_advice_is_the_same_each_time_and_the_best_is_trained_and_found_equal(found):
    question, (answer,) = found.question, found.answers
    (again,) = advise(question, vary=False, effort=FEW, train=1).answers
    assert [choice.row for choice in again.choices] == [choice.row for choice in answer.choices]
    trained = [choice.trained for choice in again.choices]
    assert trained[1:] == [None] * (len(trained) - 1)
    assert trained[0].status == "done"
    assert trained[0].equivalence.holds
    best_s = answer.best.epoch_s
    assert again.best.epoch_s == best_s
    assert read_metric(trained[0], "epoch_time") == pytest.approx(best_s, rel=1e-12)
    request = Request((), question.dataset, question.workload, question.platform)
    alone = plan_run(request, answer.best.row, make_setting(request), question.registry)
    assert read_metric(alone, "epoch_time") == best_s


def test_reasons_are_ratios_to_the_best_strategy_as_it_comes(found):
    (answer,) = found.answers
    base = answer.as_it_comes
    assert not base.row.swapped
    others = [choice for choice in answer.choices if choice.fits and choice.row != base.row]
    assert others

    def tell_links(choice):
        return format_si(read_metric(choice.run, *LINK_METRICS), "B")

    for choice in others:
        ratio = base.epoch_s / choice.epoch_s
        expected = f"as fast as {describe_row(base.row)} as it comes"
        if abs(ratio - 1.0) <= SAME:
            expected = f"It takes as long as {describe_row(base.row)} as it comes"
        else:
            # Without a basis for the model's error there is no interval.
            assert choice.reason.startswith(f"It is {ratio:.2f} times as fast as ")
        assert expected in choice.reason
        links = f"moves {tell_links(choice)} over links against {tell_links(base)}"
        assert f"{links}." in choice.reason or f"{links}; a difference is not" in choice.reason
    metrics = base.run.metrics
    moved = {name: replace(metrics[name], value=1e9) for name in LINK_METRICS if name in metrics}
    assert len(moved) > 1
    more = replace(base.run, metrics={**metrics, **moved})
    said = compare_rows((base.row, more), (base.row, base.run), "as it comes")
    total = format_si(1e9 * len(moved), "B")
    assert said.endswith(f"moves {total} over links against {tell_links(base)}.")


def test_the_answer_says_what_to_use_and_how_many_times_as_fast_it_is(found):
    (answer,) = found.answers
    base, best = answer.as_it_comes, answer.best
    rows = [replace(best.row, swapped=True), replace(best.row, swapped=False)]
    slow = replace(base, run=scale_epoch(base.run, 3.0 * best.epoch_s))
    for row, count in zip(rows, (1, 0), strict=True):
        ours = replace(best, row=row, interval_s=None)
        made = replace(answer, choices=(ours,), as_it_comes=slow, planned=1234, fitting=5678)
        use, *gain, unknown = summarise(made)
        assert f"use {describe_row(row)}, {format_si(best.epoch_s, 's')} an epoch [modelled]" in use
        assert use.endswith("(1,234 plans, of 5,678 combinations that fit and are ranked)")
        assert len(gain) == count
        assert all("is 3.00 times as fast as the best unmodified strategy" in each for each in gain)
        assert unknown == f"The model's error: {describe_errors([find_run_path(best.run)])}."


def test_the_table_has_each_choice_s_figures_in_their_columns(found):
    """The metrics are powers of 2. Rows that are reused cross no link."""

    def number(choice):
        metrics = {
            name: replace(metric, value=2.0**power)
            for power, (name, metric) in enumerate(choice.run.metrics.items())
        }
        return replace(choice, run=replace(choice.run, metrics=metrics))

    (answer,) = found.answers
    answer = replace(answer, choices=tuple(map(number, answer.choices)))
    first, *others = answer.choices
    answer = replace(answer, choices=(replace(first, interval_s=(0.5, 2.0)), *others))
    table = make_table(answer)
    assert table.columns == ("epoch", "at least", "at most", "peak device", "links")
    for row, choice in zip(table.rows, answer.choices, strict=True):
        metrics = choice.run.metrics
        assert "reused_bytes" in metrics
        links = [each.value for name, each in metrics.items() if CROSSING.fullmatch(name)]
        within = choice.interval_s or (None, None)
        figures = [choice.epoch_s, *within, metrics["peak_device_bytes"].value]
        assert [cell.value for cell in row.cells] == [*figures, sum(links)]


def scale_epoch(run, seconds):
    epoch = replace(run.metrics["epoch_time"], value=seconds)
    return replace(run, metrics={**run.metrics, "epoch_time": epoch})


def test_a_search_keeps_to_its_effort(full):
    search = Search(*full, FEW)
    search.run()
    assert len(search._seen) == FEW.plans


def test_larger_graphs_get_fewer_plans():
    def of(edges):
        return choose_effort(Graph(np.zeros(2, np.int64), np.zeros(edges, np.int32)))

    assert of(1_000).plans > of(500_000).plans > of(5_000_000).plans
    assert of(5_000_000) == of(20_000_000)


def test_settings_that_were_asked_for_are_not_searched(ask):
    options = {"sampler": {"chunks_per_partition": "3"}}
    kept = (("sampler", "hongtu"), ("memory", "hongtu"))
    question = ask(modes=("full-graph",), options=options, kept=kept)
    found = advise(question, vary=False, effort=FEW)
    for choice in found.answers[0].choices:
        assert "chunks_per_partition" not in [name for _, name, _ in choice.row.options]
        assert any("3 chunks" in note for note in choice.run.notes)


def test_least_memory_takes_no_more_memory_than_the_fastest(ask):
    question = ask(modes=("full-graph",), kept=(("placement", "hongtu"), ("kernel", "torch")))
    fastest, smallest = (
        advise(question, vary=False, effort=FEW, target=target).answers[0].best.run
        for target in ("time", "memory")
    )
    assert read_metric(smallest, "peak_device_bytes") < read_metric(fastest, "peak_device_bytes")


def test_a_strategy_that_does_not_fit_stands_last_with_the_memory_that_is_full(ask):
    question = ask(modes=("full-graph",))
    needs = read_metric(
        Pricer(question).plan(
            question.make_row(
                "full-graph", question.registry.strategy("hongtu-im").bundles["full-graph"]
            )
        ),
        "peak_device_bytes",
    )
    small = replace(question, platform=with_device_memory(question.platform, int(0.8 * needs)))
    choices = advise(small, vary=False, effort=FEW).answers[0].choices
    unfit = [choice for choice in choices if not choice.fits]
    assert "hongtu-im" in [choice.row.label for choice in unfit]
    assert choices[-len(unfit) :] == tuple(unfit)
    assert all("out of memory" in choice.reason and choice.interval_s is None for choice in unfit)


def test_nothing_that_fits_is_refused_with_the_reason(ask):
    with pytest.raises(IncompatiblePartsError, match="no combination"):
        advise(ask(kept=(("placement", "hpgnn"), ("sampler", "neighbour"))))


def test_a_machine_that_was_never_measured_is_not_guessed_about(ask, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="platforms probe"):
        advise(ask("local"))


def test_what_is_measured_is_ranked_by_that_and_not_by_a_first_epoch(ask, monkeypatch):
    """Which is slow, and whoever came first in the process would be thought the slowest."""
    trained = []

    def train(request, *given):
        found = comparison.compare(request, *given)
        trained.extend(run.metrics["epoch_time"] for run in found.runs)
        times = [replace(epoch, value=-float(number)) for number, epoch in enumerate(trained)]
        runs = [
            replace(run, metrics={**run.metrics, "epoch_time": epoch})
            for run, epoch in zip(found.runs, times, strict=True)
        ]
        return replace(found, runs=tuple(runs))

    monkeypatch.setattr(sys.modules[advise.__module__], "compare", train)
    platform = load_platform("c5-9xlarge")
    question = ask("c5-9xlarge", modes=("full-graph",))
    question = replace(
        question,
        platform=replace(platform, host=replace(platform.host, virtual=False)),
        workload=replace(question.workload, epochs=1, threads=1),
    )
    planned = advise(question, vary=False, effort=FEW).answers[0].choices
    choices = advise(question, vary=False, effort=FEW, train=2).answers[0].choices
    assert [choice.row for choice in choices] == [planned[1].row, planned[0].row] + [
        choice.row for choice in planned[2:]
    ]
    assert all(choice.trained is None for choice in choices[2:])
    assert [epoch.provenance for epoch in trained] == ["measured"] * 2
    assert all(1 <= epoch.warmup < len(epoch.samples) for epoch in trained)


def test_a_capacity_records_that_it_was_asked():
    """Chunks that were sized by it serve no platform with another memory."""
    capacity = SimpleNamespace(device_bytes=7, holds=lambda rounds, owner, pieces: pieces < 3)
    for ask in (lambda each: each.device_bytes == 7, lambda each: each.holds((), None, 2)):
        watched = WatchedCapacity(capacity)
        assert not watched.asked
        assert ask(watched)
        assert watched.asked


def test_what_is_trained_has_the_options_that_were_given(ask):
    kept, options = (("placement", "hongtu"),), {"placement": {"accelerators": "1"}}
    question = ask(modes=("full-graph",), kept=kept, options=options)
    (answer,) = advise(question, vary=False, effort=FEW, train=1).answers
    run = answer.choices[0].trained
    assert len(run.work.devices) == 1
    assert read_metric(run, "epoch_time") == pytest.approx(answer.choices[0].epoch_s, rel=1e-12)


def know_errors(monkeypatch, run, groups=FEWEST_GROUPS):
    """Let so many held-out groups of a run's kind of path be within a factor of 2."""
    known = {find_run_path(run): ModelError(groups, 2.0, 0.1, 0.1)}
    monkeypatch.setattr(model_error, "_read_kept", lambda: known)


def test_the_interval_is_the_epoch_by_the_factor_of_its_kind(found, monkeypatch):
    best = found.answers[0].best
    know_errors(monkeypatch, best.run)
    assert find_interval(best.run) == (best.epoch_s / 2.0, best.epoch_s * 2.0)
    know_errors(monkeypatch, best.run, FEWEST_GROUPS - 1)
    assert find_interval(best.run) is None


def test_links_are_all_that_cross_one():
    names = [f"{kind}_bytes" for kind in BYTE_KINDS]
    assert list(LINK_METRICS) == [name for name in names if CROSSING.fullmatch(name)]
    assert "host_to_host_bytes" in LINK_METRICS


def test_variations_differ_in_one_thing(ask):
    platform, nodes = map(load_platform, ("epyc7763x2-4xa5000", "epyc7763x4-8xa5000"))
    for each in (platform, nodes):
        hosts = {host.name for host in each.hosts}
        for before, after in zip(each.links, with_host_links(each, 2.0).links, strict=True):
            to_host = sum(end in hosts for end in before.ends) == 1
            assert after.bandwidth_bytes_per_s == (1 + to_host) * before.bandwidth_bytes_per_s
    fewer = without_device(platform)
    assert [d.name for d in fewer.accelerators] == ["gpu0", "gpu1", "gpu2"]
    assert not any("gpu3" in link.ends for link in fewer.links)
    small = with_device_memory(platform, 7)
    assert {d.hardware.memory_bytes for d in small.accelerators} == {7}
    assert small.host == platform.host
    assert len(list_variations(platform, 1e6)) == 5
    # The smallest of unequal devices counts.
    first, *others = platform.accelerators
    unequal = replace(
        platform, accelerators=(first, *(replace_fields(d, memory_bytes=80e9) for d in others))
    )
    asked = describe_question(replace(ask(), platform=unequal))
    assert asked["platform"]["device_memory_bytes"] == first.hardware.memory_bytes
    sentences = [each.what for each in list_variations(unequal, 1e6)]
    assert sentences == [
        "With 900 kB a device, less than it takes,",
        "With 12.0 GB a device instead of 24.0 GB",
        "With 36.0 GB a device instead of 24.0 GB",
        "With links to the host twice as fast, as the next generation of PCIe has them,",
        "With 3 accelerators instead of 4",
    ]
    assert list_variations(load_platform("r6i-12xlarge"), None) == ()
    with pytest.raises(UsageError, match="no accelerator"):
        with_device_memory(load_platform("r6i-12xlarge"), 7)


def test_the_cheapest_is_the_first_by_power_that_ends_in_time(ask, monkeypatch):
    monkeypatch.setattr(sys.modules[advise.__module__], "choose_effort", lambda graph: FEW)
    question = ask(modes=("full-graph",))
    question = replace(question, workload=replace(question.workload, epochs=3))
    machines = [load_platform(n) for n in ("epyc7763x2-4xa5000", "p3-2xlarge", "xeon6246r")]
    enough = find_cheapest(question, machines, 1e9)
    assert len(enough) == 1
    assert enough[0].in_time
    assert not enough[0].sure
    know_errors(monkeypatch, enough[0].answer.best.run)
    (sure,) = find_cheapest(question, [enough[0].platform], 1e9)
    assert sure.sure
    watts = [offer.power_w for offer in find_cheapest(question, machines, 1e-12)]
    powers = [[d.hardware.power_w for d in each.devices] for each in machines]
    assert watts == sorted(sum(each) for each in powers if None not in each)
    assert len(watts) >= 2
    assert watts[0] == enough[0].power_w
    took_s = 3 * enough[0].answer.best.epoch_s
    (just,) = find_cheapest(question, [enough[0].platform], took_s)
    assert just.in_time
    assert not just.sure
    (late,) = find_cheapest(question, [enough[0].platform], 0.9 * took_s)
    assert late.why_not.startswith(f"3 epochs of {enough[0].answer.best.row.label} take ")


def test_the_front_has_what_nothing_dominates():
    points = [
        tuple(map(float, each)) for each in np.random.default_rng(0).integers(0, 6, size=(80, 3))
    ]

    def dominates(one, other):
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    expected = {p for p in points if not any(dominates(q, p) for q in points)}
    assert find_front(points) == expected


def test_the_matrix_has_every_combination_once(ask):
    question = ask(strategies=("hongtu", "hongtu-im", "hyscale"))
    found = make_matrix(question)
    cells = {(cell.row.mode, cell.row.parts) for cell in found.cells}
    wanted = {
        (mode, Parts(*each))
        for mode in question.modes
        for each in itertools.product(*question.list_parts(mode).values())
    }
    assert cells == wanted
    assert len(found.cells) == len(wanted)
    bad = [c for c in found.cells if c.run.status not in ("done", "out-of-memory")]
    mixed = found.combinations - len(found.cells)
    assert sum(found.refusals.values()) == len(bad) + mixed
    assert all(cell.run.reason.endswith(".") for cell in bad)
    modes = {cell.row.mode for cell in found.front}
    assert modes == {"full-graph", "mini-batch"}


@pytest.mark.parametrize("mode", ["full-graph", "mini-batch"])
def test_a_kernel_is_advised_only_where_it_runs(registry, graph, mode):
    """Of strategies with native, DGL's and PyG's kernels on each kind of device."""
    kernels = ("torch", "pyg", "dgl", "native")
    runs_on = {"cpu": kernels, "gpu": kernels[:3], "fpga": kernels[:1]}
    for name in ("epyc7543x4-4xa100", "ecs-r5x16", "epyc7763x2-4xu250"):
        question = make_question(registry, graph, "gcn", load_platform(name))
        pricer = Pricer(question)
        for strategy in ("partition", "data-parallel", "native"):
            bundles = registry.strategy(strategy).bundles
            for kernel in kernels if mode in bundles else ():
                parts = replace(bundles[mode], kernel=kernel)
                trainers = pricer.assemble(parts).placement.trainers(question.platform)
                fits = all(kernel in runs_on[device.kind] for device in trainers)
                assert (not pricer.refuse(parts)) == fits, (name, strategy, kernel)


def test_first_choices_can_be_assembled_and_a_misplaced_kernel_is_found(
    registry, graph, monkeypatch
):
    checked = list(itertools.islice(check_choices(registry, seed=1), 8))
    assert not any(each.fault for each in checked)
    question = make_question(registry, graph, "gcn", load_platform("epyc7543x4-4xa100"))
    parts = replace(registry.strategy("partition").bundles["full-graph"], kernel="native")
    row = question.make_row("full-graph", parts)
    monkeypatch.setattr(Bundle, "refuse_devices", lambda bundle, platform: None)
    assert "gpu0, a gpu: kernel 'native' runs on the CPU" in find_fault(question, row)
