"""Commands in the README and the docs are ones: what they name is there, what they set fits."""

import re
import shlex
from pathlib import Path

import click
import pytest

from gnnbench import plugins
from gnnbench.check import graphs
from gnnbench.cli import main
from gnnbench.cli.options import CommandLine
from gnnbench.comparison import Request, Variant, check_options, plan_rows
from gnnbench.jobs.words import parse_strategies, read_settings, read_swaps
from gnnbench.machines import load_platform

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
#: The table of programs, which is measured here and reproduces no paper.
PROGRAMS = "programs"
#: What the README makes as it goes along.
MADE_BY_READER = ("half-half",)


def find_commands():
    """Of fenced blocks and of code within lines, without what the terminal printed."""
    commands = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = "\n".join(re.findall(r"^```.*?^```", text, flags=re.MULTILINE | re.DOTALL))
        fenced = re.findall(r"^gnnbench .*$", blocks, flags=re.MULTILINE)
        within = re.findall(r"`(gnnbench [^`]+)`", text)
        commands += [" ".join(command.split()) for command in (*fenced, *within)]
    return list(dict.fromkeys(command for command in commands if "·" not in command))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Files that a command would write may be written."""
    monkeypatch.chdir(tmp_path)


def resolve(command):
    """The innermost command's context, its options parsed and nothing run."""
    words = shlex.split(command, comments=True)[1:]
    line = CommandLine(("gnnbench", *words))
    # click keeps the first help option that it makes for a command, by the names of the context.
    parent = click.Context(main, info_name="gnnbench", obj=line, **main.context_settings)
    here = main
    while isinstance(here, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = here.get_command(parent, name)
        assert found is not None, f"there is no command {name!r}: {command}"
        here = found
    if words == ["--help"]:
        words = []
        here = main
    if isinstance(here, click.Group):
        assert not words, command
        return parent
    return here.make_context(here.name, words, parent=parent)


def test_there_are_commands_to_look_at():
    assert len(find_commands()) > 30


@pytest.mark.parametrize("command", find_commands())
def test_a_command_that_is_printed_can_be_typed(registry, command):
    context = resolve(command)
    given, path = context.params, context.command_path.split()[1:]
    if given.get("earlier"):
        assert len(given["earlier"]) == 2
        return
    if path in (["compare"], ["ablate"]):
        strategies = given.get("strategies") or given["strategy"]
        chosen = parse_strategies(strategies)
        if any(name in MADE_BY_READER for name, _ in chosen):
            return
        fanouts = given["fanouts"]
        assert fanouts is None or len(fanouts) == given["layers"]
        if not given["plugins"]:
            registry.model(given["model"])
        request = Request(
            strategies=tuple(Variant(name, swaps) for name, swaps in chosen),
            dataset=graphs.make_dataset(),
            workload=graphs.make_workload(),
            platform=graphs.make_platform(),
            swaps=read_swaps(given["swap"]),
            options=read_settings(given["options"]),
        )
        check_options(plan_rows(request, registry), request.options, registry)
    elif path == ["plan"]:
        strategy = registry.strategy(given["strategy"])
        # The sizes of a full graph are enough where nothing draws one.
        sized = given["batch_vertices"] or "full-graph" in strategy.bundles
        assert given["dataset"] or sized or registry.planner(strategy.name)
        parts = strategy.bundles[strategy.default_mode]
        plugins.assemble(registry, parts, read_settings(given["options"]))
    elif path == ["reproduce"]:
        for name in given["names"]:
            if name != PROGRAMS:
                registry.reproduction(name)
    elif path == ["plugins", "show"]:
        registry.strategy(given["name"])
    platform = given.get("platform") or (given["name"] if path == ["platforms", "show"] else None)
    if platform is not None and not platform.endswith(".toml"):
        load_platform(platform)
