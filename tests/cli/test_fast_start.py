"""Commands that train nothing answer without torch, from an index that is never stale."""

import json
import os
import subprocess
import sys
import types
from dataclasses import replace

import pytest
import torch  # commands of this process load plugins, and never read the index
from click.testing import CliRunner

from gnnbench import plugins
from gnnbench.cli import main
from gnnbench.plugins import index
from gnnbench.plugins.listing import list_offers
from tests.cli.test_plugins_cli import PLUGIN

HEAVY = ("torch", "dgl", "torch_geometric", "scipy.sparse", "pandas", "gnnbench.kernels.dispatch")
SWEEP = """
datasets = ["sbm"]
strategies = ["hongtu"]
platforms = ["epyc7763x2-4xa5000"]
models = ["gcm"]
"""
#: Commands, and their exit status.
COMMANDS = {
    ("--help",): 0,
    ("compare", "--help"): 0,
    ("datasets", "list"): 0,
    ("platforms", "list"): 0,
    ("plugins", "list"): 0,
    ("plugins", "list", "--json", "-"): 0,
    ("plugins", "show", "hongtu"): 0,
    ("plugins", "show", "hongtu", "--json", "-"): 0,
    ("plugins", "show", "vanilla", "--json", "-"): 0,
    ("plugins", "show", "hongto"): 2,
    ("plugins", "show", "communication=hongto"): 2,
    ("plugins", "check", "kernel=nativ"): 2,
    ("compare", "--plugins", "hyscal"): 2,
    ("compare", "--plugins", "hongtu,hyscale:memory=hongto"): 2,
    ("compare", "--plugins", "hongtu", "--swap", "kernel=nativ"): 2,
    ("compare", "--plugins", "hongtu", "--model", "gcm"): 2,
    ("compare", "--plugins", "hongtu", "--dataset", "sbn"): 2,
    ("compare", "--plugins", "hongtu", "--platform", "epyc7763x2"): 2,
    ("compare", "hongtu", "hyscale"): 2,
    ("compare",): 2,
    ("plan", "hyscal", "--dataset", "sbm"): 2,
    ("ablate", "hyscal"): 2,
    ("advise", "--plugins", "hongtu,hyscal"): 2,
    ("matrix", "--model", "gcm"): 2,
    ("sweep", "sweep.toml"): 2,
}
PROGRAM = """
import json, sys
sys.path[:], commands, heavy = json.loads(sys.argv[1])
from click.testing import CliRunner
from gnnbench.cli import main
for words in commands:
    found = CliRunner().invoke(main, words)
    imported = [name for name in heavy if name in sys.modules]
    print(json.dumps([found.exit_code, found.stdout, found.stderr, imported]))
"""


@pytest.fixture(scope="module")
def listing():
    return list_offers(plugins.load())


@pytest.fixture(scope="module")
def answers(listing, tmp_path_factory):
    """What one process answers to every command, and what it has imported by then."""
    folder = tmp_path_factory.mktemp("fast")
    (folder / "sweep.toml").write_text(SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.chdir(folder)
        index.keep_index(listing, index.find_index())
        request = json.dumps([sys.path, list(COMMANDS), HEAVY])
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, request],
            capture_output=True,
            text=True,
            check=True,
            env=dict(os.environ),  # readline sets COLUMNS behind it
        )
        loaded = [CliRunner().invoke(main, words) for words in COMMANDS]
    found = map(json.loads, ended.stdout.splitlines())
    return dict(zip(COMMANDS, zip(found, loaded, strict=True), strict=True))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_answers_without_torch_are_those_of_the_plugins_themselves(answers, words):
    (status, output, errors, imported), loaded = answers[words]
    assert imported == []
    assert (status, output, errors) == (loaded.exit_code, loaded.stdout, loaded.stderr)
    assert status == COMMANDS[words]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed distribution whose plugin does not import, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site = tmp_path / "site"
    (site / "fast_mine" / "__pycache__").mkdir(parents=True)
    (site / "fast_mine" / "__init__.py").write_text("raise RuntimeError('no luck')\n")
    (site / "mine-1.5.dist-info").mkdir()
    (site / "mine-1.5.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.5\n")
    entry = site / "mine-1.5.dist-info" / "entry_points.txt"
    entry.write_text("[gnnbench]\nmine = fast_mine\n")
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("fast_mine", None)


def touch(path):
    """A second passes for a file, which keeps its size."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 10**9))


CHANGES = {
    "edited": lambda site, patch: (site / "fast_mine" / "__init__.py").write_text("2"),
    "touched": lambda site, patch: touch(site / "fast_mine" / "__init__.py"),
    "compiled": lambda site, patch: (site / "fast_mine" / "kernel.so").write_bytes(b""),
    "inner": lambda site, patch: (
        (site / "fast_mine" / "part").mkdir()
        or (site / "fast_mine" / "part" / "x.py").write_text("")
    ),
    "distribution": lambda site, patch: (site / "other-2.dist-info").mkdir(),
    "reinstalled": lambda site, patch: touch(site / "mine-1.5.dist-info"),
    "entry": lambda site, patch: (site / "mine-1.5.dist-info" / "entry_points.txt").write_text(
        "[gnnbench]\nmine = fast_mine\nmore = fast_mine.more\n"
    ),
    "path": lambda site, patch: patch.syspath_prepend(str(site.parent)),
    "variable": lambda site, patch: patch.setenv("DGLBACKEND", "mxnet"),
    "version": lambda site, patch: patch.setattr("gnnbench.__version__", "9.9"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_plugins_depend_on_makes_another_index(package, monkeypatch, change):
    before = index.find_index()
    (package / "fast_mine" / "__pycache__" / "x.pyc").write_bytes(b"anew")
    (package / "unrelated.txt").write_text("no distribution")
    monkeypatch.setenv("COLUMNS", "77")
    assert index.find_index() == before
    CHANGES[change](package, monkeypatch)
    assert index.find_index() != before


@pytest.fixture
def without_torch(monkeypatch):
    """The index is read as in a process that has not imported torch."""
    monkeypatch.setattr(index, "sys", types.SimpleNamespace(**{**vars(sys), "modules": {}}))


def test_plugins_are_loaded_once_for_each_state_of_them(package, without_torch):
    broken, registry = index.open_listing()
    assert registry is not None
    (problem,) = broken.problems
    assert problem.startswith("plugin 'mine' does not import (fast_mine): RuntimeError: no luck")
    assert index.open_listing() == (broken, None)
    (package / "fast_mine" / "__init__.py").write_text(PLUGIN)
    mended, registry = index.open_listing()
    assert mended == list_offers(registry)
    (mine,) = [each for each in mended.strategies if each not in broken.strategies]
    assert (mine.name, str(mine.origin)) == ("mine", "mine (mine 1.5)")
    assert not mended.problems
    path = index.find_index()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert index.open_listing()[1] is not None
    assert path.read_bytes() == whole
    assert index.open_listing() == (mended, None)


@pytest.mark.parametrize("asked", [True, False])
def test_a_plugin_asked_for_and_a_process_with_torch_load_plugins(
    listing, package, without_torch, asked
):
    index.keep_index(replace(listing, problems=("old",)), index.find_index())
    file = package.parent / "asked.py"
    file.write_text(PLUGIN)
    if not asked:
        index.sys.modules["torch"] = torch
    found, registry = index.open_listing([str(file)] * asked)
    assert found == list_offers(registry)
    assert "old" not in found.problems
    assert any(each.name == "mine" for each in found.strategies) == asked


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "altered": lambda path: path.write_bytes(path.read_bytes().replace(b"hongtu", b"hongto")),
    "not text": lambda path: path.write_bytes(b"\xff" * 80),
    "another's": lambda path: path.write_text(f"{index._checksum('{}')}\n{{}}"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_none(listing, tmp_path, damage):
    path = tmp_path / "folder" / "index.json"
    index.keep_index(listing, path)
    assert index.read_index(path) == listing
    DAMAGES[damage](path)
    assert index.read_index(path) is None


def test_where_no_index_can_be_written_plugins_are_loaded(package, without_torch, monkeypatch):
    (package / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(package / "file"))
    assert index.open_listing()[1] is not None
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", homeless)
    assert index.find_index() is None
    assert index.open_listing()[1] is not None


def test_the_indexes_written_last_are_kept(listing, tmp_path):
    for number in range(17):
        path = tmp_path / f"{number}.json"
        index.keep_index(listing, path)
        os.utime(path, (100 - number, 100 - number))
    index.keep_index(listing, tmp_path / "new.json")
    assert {path.stem for path in tmp_path.iterdir()} == {"new", *map(str, range(15))}


UNREADABLE = """
from dataclasses import dataclass
from gnnbench.hookspecs import hookimpl
from gnnbench.parts import option
from gnnbench_plugins.reference.memory import ResidentMemory

@dataclass(frozen=True)
class Odd(ResidentMemory):
    '''An option of a type that is nowhere.'''
    name = "odd"
    summary = "odd"
    depth: "Nowhere" = option(1, "how deep")

@hookimpl
def gnnbench_memory():
    return [Odd]
"""


def test_an_option_that_cannot_be_described_hinders_only_what_describes_it(run, tmp_path):
    file = tmp_path / "odd.py"
    file.write_text(UNREADABLE)
    assert "odd" in run("plugins", "list", "--plugin", file).stdout
    shown = run("plugins", "show", "odd", "--plugin", file)
    assert shown.exit_code == 2
    assert shown.stderr == (
        "gnnbench: error: option 'depth' of memory 'odd' has an annotation that cannot be read: "
        "NameError: name 'Nowhere' is not defined.\n"
    )
