"""Plugins are found, checked, told apart and put together; what is broken says so in a sentence."""

import sys
import textwrap
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar, Literal

import pytest

from gnnbench import plugins
from gnnbench.errors import PluginError, UsageError
from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Bundle, Placement, option, parse_option
from gnnbench.plugins import loading, sources
from gnnbench.plugins.sources import find_entries
from gnnbench.records import PART_KINDS, Parts
from gnnbench_plugins.reference.placement import SinglePlacement

PLAIN = Parts("neighbour", "single", "vanilla", "host", "torch")

HEADER = """
from dataclasses import dataclass
from gnnbench.hookspecs import hookimpl
from gnnbench.parts import Placement, option
from gnnbench.records import Parts, Share, Strategy
"""

PLACEMENT = """
@dataclass(frozen=True)
class Alone(Placement):
    name = "{name}"
    summary = "the host alone"
    def trainers(self, platform):
        return (platform.host,)

@hookimpl
def gnnbench_placement():
    return [Alone]
"""


def write(folder, name, body):
    path = folder / f"{name}.py"
    path.write_text(HEADER + textwrap.dedent(body), encoding="utf-8")
    return str(path)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes modules importable and puts them among the entry points, after the real ones."""
    monkeypatch.syspath_prepend(str(tmp_path))
    added = []
    monkeypatch.setattr(loading, "find_entries", lambda problems: find_entries(problems) + added)

    def add(name, body):
        write(tmp_path, name, body)
        added.append(metadata.EntryPoint(name, name, plugins.GROUP))

    yield add
    for entry in added:
        sys.modules.pop(entry.name, None)


def test_bundled_reference_is_found(registry):
    assert registry.problems == ()
    assert registry.strategy("reference").bundles["mini-batch"] == PLAIN
    assert registry.origin(registry.part("kernel", "torch")).distribution == "gnnbench"


def test_installed_plugin_is_loaded_with_its_origin(install):
    install("plugged_sound", PLACEMENT.format(name="plugged"))
    registry = plugins.load()
    part = registry.part("placement", "plugged")
    assert registry.origin(part) == plugins.Origin("plugged_sound", None, None)


def test_plugin_that_does_not_import_is_reported_and_skipped(install):
    install("plugged_broken", "import a_library_nobody_has")
    install("plugged_beside", PLACEMENT.format(name="beside"))
    registry = plugins.load()
    (problem,) = registry.problems
    assert "'plugged_broken'" in problem
    assert "No module named 'a_library_nobody_has'" in problem
    assert "plugged_broken.py, line 6" in problem
    assert registry.part("placement", "beside").name == "beside"
    assert registry.strategy("reference")


@pytest.mark.parametrize("error", ["SystemExit(5)", "KeyboardInterrupt", "GeneratorExit"])
def test_plugin_that_leaves_while_it_is_imported_is_skipped(install, monkeypatch, error):
    monkeypatch.setattr(sources, "is_interrupt", lambda error: False)
    install("plugged_leaves", f"raise {error}")
    assert error.partition("(")[0] in plugins.load().problems[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("entry_points.txt", "[gnnbench]\nthis line is broken\n"),
        ("entry_points.txt", "[gnnbench]\nx = !!\n"),
        ("entry_points.txt", b"\xff\xfe"),
        ("METADATA", b"\xff\xfe"),
    ],
)
def test_damaged_metadata_of_a_package_stop_nothing(tmp_path, monkeypatch, name, content):
    folder = tmp_path / "torn-1.0.dist-info"
    folder.mkdir()
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = plugins.load()
    assert registry.strategy("reference")
    if name == "METADATA":
        assert registry.problems == ()
    else:
        (problem,) = registry.problems
        assert "'torn-1.0' were skipped because its entry_points.txt is damaged" in problem


def test_asking_for_what_a_broken_plugin_offers_says_so(install):
    install("plugged_gone", "raise OSError('no driver here')")
    with pytest.raises(PluginError, match=r"'plugged_gone' is not available: .*no driver here"):
        plugins.load().strategy("plugged_gone")


def test_a_name_that_is_a_part_of_a_problem_gets_its_close_matches(install):
    install("plugged_reference_gone", "raise OSError('no driver here')")
    with pytest.raises(PluginError, match=r"no strategy 'referenc' .did you mean 'reference'"):
        plugins.load().strategy("referenc")


def test_entry_point_of_one_module_twice_is_one_plugin(install):
    install("plugged_twice", PLACEMENT.format(name="twice"))
    install("plugged_twice", PLACEMENT.format(name="twice"))
    assert plugins.load().problems == ()


def test_misspelled_hook_of_an_installed_plugin_skips_only_that_plugin(install):
    install("plugged_spelling", "@hookimpl\ndef gnnbench_kernal(): return []")
    install("plugged_next", PLACEMENT.format(name="next"))
    registry = plugins.load()
    (problem,) = registry.problems
    assert "'plugged_spelling'" in problem
    assert "did you mean 'gnnbench_kernel'" in problem
    assert registry.part("placement", "next")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "@hookimpl\ndef gnnbench_placment(): return []",
            "'gnnbench_placment'.*gnnbench_placement",
        ),
        ("@hookimpl\ndef gnnbench_kernel(device): return []", "hook of the wrong form.*device"),
        ("def gnnbench_kernel(): return []", "implements no hook; mark"),
        (
            "@hookimpl\ndef gnnbench_kernel(): return 1 / 0",
            "offers nothing by gnnbench_k.*Zero",
        ),
    ],
)
def test_a_file_whose_hook_is_none_or_raises_is_an_error(tmp_path, body, says):
    path = write(tmp_path, "wrong", body)
    with pytest.raises(PluginError, match=rf"wrong.py.*{says}"):
        plugins.load([path])


def test_file_that_raises_names_file_line_and_exception(tmp_path):
    for body, says in (
        ("x = 1\nraise ValueError('bad table')", r"line 7, raised ValueError: bad table"),
        ("def f(:\n  pass", r"line 6, raised SyntaxError"),
    ):
        path = write(tmp_path, "fails", body)
        with pytest.raises(PluginError, match=says) as caught:
            plugins.load([path])
        assert path in str(caught.value)
        assert caught.value.exit_status == 2


def test_what_is_not_there_is_an_error(tmp_path):
    with pytest.raises(PluginError, match="there is no plugin file"):
        plugins.load([str(tmp_path / "absent.py")])
    with pytest.raises(PluginError, match=r"there is no plugin module 'surely_absent\.plugin'"):
        plugins.load(["surely_absent.plugin"])


def test_bundled_module_asked_for_by_name_is_not_a_second_plugin():
    assert plugins.load(["gnnbench_plugins.reference"]).strategy("reference")


def test_name_offered_twice_names_both_plugins(tmp_path):
    one = write(tmp_path, "one", PLACEMENT.format(name="same"))
    other = write(tmp_path, "other", PLACEMENT.format(name="same"))
    with pytest.raises(PluginError, match=r"placement 'same' .*one\.py.*other\.py"):
        plugins.load([one, other])


def test_an_object_with_hooks_is_a_plugin():
    class Hooks:
        @hookimpl
        def gnnbench_placement(self):
            return [Handed]

    class Handed(SinglePlacement):
        name = "handed"

    assert plugins.load(objects=[Hooks()]).part("placement", "handed") is Handed


def test_strategy_offered_twice_names_both_plugins(tmp_path):
    again = """
        @hookimpl
        def gnnbench_strategy():
            parts = Parts("neighbour", "single", "vanilla", "host", "torch")
            return [Strategy("reference", "again", "here", {"mini-batch": parts})]
    """
    path = write(tmp_path, "again", again)
    with pytest.raises(PluginError, match=r"strategy 'reference' .*reference \(gnnbench.*again.py"):
        plugins.load([path])


def test_a_name_that_two_installed_packages_offer_stops_only_those_who_ask_for_it(install):
    install("plugged_one", PLACEMENT.format(name="same"))
    install("plugged_two", PLACEMENT.format(name="same"))
    install(
        "plugged_user",
        """
        @hookimpl
        def gnnbench_strategy():
            parts = Parts("neighbour", "same", "vanilla", "host", "torch")
            return [Strategy("user", "uses it", "here", {"mini-batch": parts})]
        """,
    )
    registry = plugins.load()
    assert registry.strategy("reference")
    (problem,) = registry.problems
    assert "by two plugins, plugged_one (not installed) and plugged_two (not" in problem
    for ask in (lambda: registry.part("placement", "same"), lambda: registry.strategy("user")):
        with pytest.raises(PluginError, match=r"is not available: placement 'same' is offered by"):
            ask()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("class Half(Placement):\n    name = 'half'\n    summary = 'x'\n",
         r"placement 'half' of plugin .* is abstract; Half must define trainers"),
        ("class Half: name = 'half'", "not a subclass of Placement"),
        ("Half = 'half'", "offers 'half' as a placement"),
        ("class Half(Placement):\n    summary = 'x'", "needs a class variable name"),
        ("class Half(Placement):\n    name = 'a,b'", "not 'a,b'"),
        ("class Half(Placement):\n    name = 'half'\n    def trainers(self, p): ...\n",
         "needs a class variable summary"),
        ("class Half(Placement):\n    name = 'half'\n    summary = 'x'\n"
         "    deep: int = option(1, 'h')\n    def trainers(self, p): ...",
         "option 'deep' but lacks the decorator @dataclass"),
        ("@dataclass(frozen=True)\nclass Half(Placement):\n    deep: int\n"
         "    name = 'half'\n    summary = 'x'\n    def trainers(self, p): ...",
         "option 'deep' .* has no default"),
    ],
)  # fmt: skip
def test_part_that_cannot_be_assembled_is_refused(tmp_path, install, body, says):
    body += "\n\n@hookimpl\ndef gnnbench_placement(): return [Half]\n"
    with pytest.raises(PluginError, match=says):
        plugins.load([write(tmp_path, "halves", body)])
    # The same in an installed plugin is reported, and nothing else is lost.
    install("plugged_half", body)
    registry = plugins.load()
    assert len(registry.problems) == 1
    with pytest.raises(PluginError):
        registry.part("placement", "half")
    assert registry.strategy("reference")


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("class Half(HostLoading):\n    name, summary, prefetch = 'half', 'x', 1",
         "has prefetch, for mini-batch training; set modes to that alone"),
        ("class Half(HostLoading):\n    name, summary, ahead = 'half', 'x', 1",
         "has ahead, for full-graph training"),
        ("Half = Parts", "as a part, which is not a subclass of a kind of part"),
    ],
)  # fmt: skip
def test_a_part_of_any_kind_is_checked_where_one_hook_offers_all(tmp_path, part, says):
    offer = "\n\n@hookimpl\ndef gnnbench_parts(): return [Half, Whole]\n"
    whole = "class Whole(HostLoading):\n    name, summary = 'whole', 'x'\n"
    first = f"from gnnbench.parts import HostLoading\n{whole}"
    with pytest.raises(PluginError, match=says):
        plugins.load([write(tmp_path, "halves", f"{first}{part}{offer}")])
    kernel = "from gnnbench_plugins.reference.kernel import TorchKernel\nclass Half(TorchKernel):"
    path = write(tmp_path, "wholes", f"{first}{kernel} name = 'half'{offer}")
    registry = plugins.load([path])
    assert registry.part("communication", "whole").__name__ == "Whole"
    assert registry.part("kernel", "half").__name__ == "Half"


@pytest.mark.parametrize(
    ("mode", "kernel", "memory", "says"),
    [
        ("mini-batch", "torhc", "host",
         r"no plugin offers its kernel 'torhc' \(did you mean 'torch'"),
        ("full-graph", "torch", "host", "its sampler 'neighbour' does not work for full-graph"),
        ("sideways", "torch", "host", "must have a bundle for mini-batch, for full-graph"),
    ],
)  # fmt: skip
def test_strategy_that_cannot_be_put_together_is_refused(install, mode, kernel, memory, says):
    install(
        "plugged_strategy",
        f"""
        @hookimpl
        def gnnbench_strategy():
            parts = Parts("neighbour", "single", "vanilla", {memory!r}, {kernel!r})
            return [Strategy("loose", "loose parts", "here", {{{mode!r}: parts}})]
        """,
    )
    registry = plugins.load()
    assert len(registry.problems) == 1
    with pytest.raises(PluginError, match=says):
        registry.strategy("loose")


def test_unknown_names_list_what_there_is(registry):
    with pytest.raises(PluginError, match=r"no strategy 'referense' \(did you mean 'reference'"):
        registry.strategy("referense")
    with pytest.raises(PluginError, match=r"no kernel 'cuda'.*torch"):
        registry.part("kernel", "cuda")
    with pytest.raises(UsageError, match=r"no part 'brain'; the parts are sampler, placement"):
        registry.part("brain", "torch")


@dataclass(frozen=True)
class Tunable(Placement):
    name: ClassVar[str] = "tunable"
    summary: ClassVar[str] = "for the tests"

    count: int = option(2, "how many")
    share: float = option(0.5, "of the seeds")
    quick: bool = option(False, "leave out the slow half")
    label: str = option("a", "printed")
    order: Literal["up", "down"] = option("up", "which way")
    ways: Literal[1, 2] = option(1, "how many ways")
    cap: int = option(0, "at most", unit="bytes")
    odd: bytes = option(b"", "cannot be read from text")

    def __post_init__(self):
        if self.count < 1:
            raise ValueError(f"count is {self.count}; give 1 or more")

    def trainers(self, platform):
        return (platform.host,)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "12", 12),
        ("count", " -3 ", -3),
        ("share", "1e-3", 1e-3),
        ("quick", "true", True),
        ("quick", "Off", False),
        ("label", "1", "1"),
        ("order", "down", "down"),
        ("ways", "2", 2),
        ("cap", "2GB", 2 * 10**9),
        ("cap", "512 MiB", 512 * 2**20),
    ],
)
def test_option_is_read_by_its_annotation(name, text, value):
    read = parse_option(Tunable, name, text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("count", "two", "placement.count of placement 'tunable' takes a whole number from"),
        ("count", "1.5", "a whole number"),
        ("share", "nan", "a finite number"),
        ("share", "half", "a finite number"),
        ("quick", "maybe", "true or false"),
        ("order", "left", "one of up, down, not 'left'"),
        ("cap", "2 pounds", "a size in bytes"),
        ("cap", "-1", "a size in bytes"),
    ],
)  # fmt: skip
def test_text_that_does_not_fit_says_what_does(name, text, says):
    with pytest.raises(UsageError, match=says):
        parse_option(Tunable, name, text)


def test_unknown_option_lists_the_options_with_their_help():
    with pytest.raises(UsageError, match=r"no option 'cuont' \(did you mean 'count'") as caught:
        parse_option(Tunable, "cuont", "1")
    assert "count (a whole number, default 2): how many" in str(caught.value)
    assert "order (one of up, down, default 'up'): which way" in str(caught.value)


def test_option_of_a_type_that_text_cannot_give_is_the_plugins_fault():
    with pytest.raises(PluginError, match="must be int, float, bool, str or Literal"):
        parse_option(Tunable, "odd", "1")


def test_part_without_options_says_so(registry):
    with pytest.raises(UsageError, match="'vanilla' has no option 'depth'; it takes no options"):
        parse_option(registry.part("communication", "vanilla"), "depth", "1")


def test_assemble_gives_the_named_parts_with_their_options(registry):
    options = {"memory": {"device_bytes": "2GB"}, "placement": {"on_host": "yes"}}
    bundle = plugins.assemble(registry, PLAIN, options)
    assert isinstance(bundle, Bundle)
    assert [part.name for part in bundle.all()] == [PLAIN.named(kind) for kind in PART_KINDS]
    assert bundle.memory.device_bytes == 2 * 10**9
    assert bundle.placement.on_host is True


def test_assemble_refuses_options_of_no_part(registry):
    with pytest.raises(UsageError, match="no part 'memroy'"):
        plugins.assemble(registry, PLAIN, {"memroy": {"device_bytes": "1"}})
    with pytest.raises(UsageError, match="memory 'host' has no option 'bytes'"):
        plugins.assemble(registry, PLAIN, {"memory": {"bytes": "1"}})


def test_value_that_a_part_refuses_is_a_usage_error(registry):
    origins = dict(registry.part_origins)
    with_tunable = plugins.Registry(
        parts={**registry.parts, ("placement", "tunable"): Tunable},
        strategies_by_name=registry.strategies_by_name,
        part_origins=origins,
        strategy_origins=registry.strategy_origins,
    )
    parts = plugins.with_swap(with_tunable, PLAIN, [("placement", "tunable")])
    with pytest.raises(UsageError, match=r"with placement.count=0: count is 0; give 1 or more\.$"):
        plugins.assemble(with_tunable, parts, {"placement": {"count": "0"}})
