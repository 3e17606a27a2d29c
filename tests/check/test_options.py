"""Options that cannot mean anything are refused in a sentence, whichever part has them."""

from functools import cache

import pytest
from click.testing import CliRunner

from gnnbench import datasets, plugins
from gnnbench.check import graphs
from gnnbench.cli import main
from gnnbench.machines import load_platform
from gnnbench.parts import option_fields
from gnnbench.records import PART_KINDS

GPUS, FPGAS = "epyc7763x2-4xa5000", "epyc7763x2-4xu250"
PLATFORMS = (
    GPUS,
    FPGAS,
    "epyc7543x4-4xa100",
    "ecs-r5x16",
    "xeon8462-8xh100-8xspu",
    "xeon8462x4-32xh100",
)
#: Where the parts of a strategy have something to run on.
HOMES = {"hpgnn": FPGAS, "distgnn": "ecs-r5x16", "mixgcn:kernel=spu": "xeon8462-8xh100-8xspu"}

UNFIT_SIZES, UNLIKELY_SIZES = ("-1", "1XB", "nan", "", "1e99"), ("0", "1", "1e15")
FAR = "1000000000"
BEYOND = "99999999999999999999"
#: By the type of an option's value: texts that are none, and those that could be.
UNFIT = {
    int: ("1.5", "nan", "", "x", BEYOND, f"-{BEYOND}"),
    float: ("nan", "inf", "-inf", "x", ""),
    bool: ("maybe", "2", ""),
    str: (),
}
UNLIKELY = {
    int: ("-1", "0", FAR),
    float: ("-1", "0", "2", "1e300"),
    bool: (),
    str: ("no such thing", "", "-1", "0,0", f"{FAR},{BEYOND}"),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "small.npz"
    datasets.save_npz(graphs.make_dataset(), path)
    return path


@cache
def list_batch_words(strategy):
    """Mini-batches are small; a full graph takes no such option."""
    mode = plugins.load([]).strategy(strategy.partition(":")[0]).default_mode
    return ("--batch-size", "13") if mode == "mini-batch" else ()


def run(graph, strategy, setting, platform):
    words = ("--dataset", str(graph), "--platform", platform, "--set", setting, "--threads", "1")
    small = ("--epochs", "2", "--hidden", "6", *list_batch_words(strategy))
    return CliRunner().invoke(main, ["compare", "--plugins", strategy, *words, *small])


def assert_refused(result, case):
    assert result.exit_code == 2, f"{case}: {result.output}"
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("gnnbench: error: "), case
    assert "Traceback" not in result.output, case


def find_strategy(registry, part):
    """What to compare so that a part takes part: a strategy that has it, or the strategy of its
    plugin with it."""
    for strategy in registry.strategies:
        if any(bundle.named(part.kind) == part.name for bundle in strategy.bundles.values()):
            return strategy.name
    return f"{registry.origin(part).plugin}:{part.kind}={part.name}"


@pytest.mark.long
@pytest.mark.parametrize("kind", PART_KINDS)
def test_an_option_with_a_silly_value_is_refused_or_harmless(registry, graph, kind, one_thread):
    """Every option of every part: a text that does not fit is refused; a number that fits the
    option's type is refused too, or the run is done and equal to the reference, or says that
    memory is too small."""
    tried = 0
    for part in filter(option_fields, registry.parts_of(kind)):
        strategy = find_strategy(registry, part)
        platform = HOMES.get(strategy, HOMES.get(strategy.partition(":")[0], GPUS))
        for name, field in option_fields(part).items():
            is_size, kind_of_value = field.metadata["unit"] == "bytes", type(field.default)
            unfit = UNFIT_SIZES if is_size else UNFIT[kind_of_value]
            for text in unfit:
                assert_refused(run(graph, strategy, f"{kind}.{name}={text}", platform), text)
                tried += 1
            for text in UNLIKELY_SIZES if is_size else UNLIKELY[kind_of_value]:
                case = f"{kind}.{name}={text} of {part.name}"
                result = run(graph, strategy, f"{kind}.{name}={text}", platform)
                if is_size and result.exit_code == 4:
                    assert "out-of-memory: " in result.stdout, case
                elif result.exit_code:
                    assert_refused(result, case)
                tried += 1
    assert tried


@pytest.mark.long
@pytest.mark.parametrize("platform", PLATFORMS)
def test_more_devices_than_there_are_or_fewer_than_none(registry, graph, platform):
    """Of every strategy whose placement counts devices, on every platform."""
    machine = load_platform(platform)
    counted = 0
    for strategy in registry.strategies:
        names = {bundle.placement for bundle in strategy.bundles.values()}
        for placement in names:
            part = registry.part("placement", placement)()
            for option, most in part.available(machine).items():
                for count in (-1, most + 1, 99):
                    result = run(graph, strategy.name, f"placement.{option}={count}", platform)
                    assert_refused(result, f"{strategy.name} {option}={count}")
                    said = f"placement.{option} is {count}, and platform {platform} has "
                    assert said in result.stderr
                    counted += 1
    assert counted > 3 * 10


def test_counts_of_devices_in_a_plan(graph):
    for count in ("-1", "5"):
        words = ["plan", "hongtu", "--dataset", str(graph), "--platform", GPUS]
        result = CliRunner().invoke(main, [*words, "--set", f"placement.accelerators={count}"])
        assert_refused(result, count)
        assert "has 4 such devices; give 1 to 4, or 0 for all of them." in result.stderr
