"""``plugins new`` writes a package that loads, runs, conforms, and overwrites nothing."""

import sys

import numpy as np
import pytest

from gnnbench import plugins, scaffold
from gnnbench.check import graphs
from gnnbench.comparison import Request, compare
from gnnbench.errors import UsageError
from gnnbench.models import build
from gnnbench.parts import Setting
from tests.commands import run_python

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib


@pytest.fixture
def package(tmp_path):
    scaffold.create("even-split", tmp_path)
    return tmp_path / "gnnbench-even-split"


@pytest.fixture
def registry(package):
    return plugins.load([str(package / "src/gnnbench_even_split/__init__.py")])


def test_files_are_returned_and_leave_no_placeholder(tmp_path):
    written = scaffold.create("tiny", tmp_path / "made" / "here")
    root = tmp_path / "made" / "here" / "gnnbench-tiny"
    assert [path.relative_to(root).as_posix() for path in written] == [
        "README.md",
        "pyproject.toml",
        "src/gnnbench_tiny/__init__.py",
        "src/gnnbench_tiny/communication.py",
        "src/gnnbench_tiny/placement.py",
        "tests/test_conformance.py",
    ]
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert "$" not in text, path
        if path.suffix == ".py":
            compile(text, str(path), "exec")


def test_package_declares_its_entry_point(package):
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "gnnbench-even-split"
    assert project["entry-points"]["gnnbench"] == {"even-split": "gnnbench_even_split"}


def test_package_loads_from_its_file_and_assembles(registry):
    assert registry.problems == ()
    parts = registry.strategy("even-split").bundles["mini-batch"]
    bundle = plugins.assemble(registry, parts, {"placement": {"accelerators": "2"}})
    platform = graphs.make_platform(num_accelerators=3)
    assert [device.name for device in bundle.placement.trainers(platform)] == ["gpu0", "gpu1"]
    assert split(bundle.placement, platform, 7) == [3, 4]
    for count in ("-1", "4"):
        bundle = plugins.assemble(registry, parts, {"placement": {"accelerators": count}})
        said = bundle.placement.refuse_counts(platform)
        assert said is not None
        assert f"placement.accelerators is {count}, and platform conformance has 3" in said


def split(placement, platform, count):
    """The numbers of seeds in a round's shares."""
    workload = graphs.make_workload()
    setting = Setting(graphs.make_dataset(), platform, workload, build(workload).shapes)
    handed = placement.open(setting, [], 0).share_out(np.arange(count))
    assert [len(seeds) for _, seeds in handed] == [share.seeds for share, _ in handed]
    return [share.seeds for share, _ in handed]


def test_strategy_runs_beside_the_reference_and_saves_bytes(registry):
    request = Request(
        strategies=("reference", "even-split"),
        dataset=graphs.make_dataset(),
        workload=graphs.make_workload(),
        platform=graphs.make_platform(),
        swaps=(("communication", "vanilla"),),
        modes=("mini-batch",),
    )
    runs = {run.label: run for run in compare(request, registry).runs}
    assert {run.status for run in runs.values()} == {"done"}
    ours, plain = runs["even-split"], runs["even-split·vanilla"]
    saved = plain.metrics["host_to_device_bytes"].value - ours.metrics["host_to_device_bytes"].value
    assert saved == ours.metrics["reused_bytes"].value > 0


@pytest.mark.long
def test_own_test_suite_of_the_package_passes_once_it_is_installed(package, tmp_path, monkeypatch):
    """Installed in the simplest way there is: its source and its metadata on the path."""
    source = package / "src"
    info = source / "gnnbench_even_split-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: gnnbench-even-split\nVersion: 0.1.0\n"
    )
    (info / "entry_points.txt").write_text("[gnnbench]\neven-split = gnnbench_even_split\n")
    monkeypatch.setenv("PYTHONPATH", ":".join([str(source), *filter(None, sys.path)]))
    done = run_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=package, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(
    "name", ["", "Upper", "9lives", "a_b", "a--b", "-a", "a-", "a/b", "../x", "a b"]
)
def test_bad_name_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="is not a name for a strategy"):
        scaffold.create(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_name_that_is_taken_is_refused(tmp_path):
    with pytest.raises(UsageError, match="strategy 'reference' is offered already"):
        scaffold.create("reference", tmp_path)
    with pytest.raises(UsageError, match="communication 'vanilla' is offered already"):
        scaffold.create("vanilla", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_existing_folder_is_left_alone(package):
    (package / "README.md").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        scaffold.create("even-split", package.parent)
    assert (package / "README.md").read_text() == "mine"


def test_name_that_the_file_system_does_not_take_is_refused(tmp_path):
    with pytest.raises(UsageError, match="its name is longer than the file system takes"):
        scaffold.create("x" * 300, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot be made: it is a file"):
        scaffold.create("tiny", tmp_path / "file")
