"""What is installed is whole, runs away from its sources, and can be installed as pinned."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ("3.10", "3.11", "3.12")


KERNELS = sorted(path.stem for path in ROOT.glob("cython_ext/*.pyx"))
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
#: A compiler that hands out the kernels that were built beside the code, and writes no objects.
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && made=$2
    shift
done
case "$made" in
    *.so) cp "{built}/${{made##*/}}" "$made" ;;
    *) : > "$made" ;;
esac
"""
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def build_wheel(sources: Path, target: Path, **environment: str) -> Path:
    """Build and unpack the wheel by the build system that pip asks, without the network."""
    target.mkdir()
    subprocess.run(
        [sys.executable, "-c", BUILD, str(target)],
        cwd=sources,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    (wheel,) = target.glob("gnnbench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "unpacked")
    return target / "unpacked"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone's files that decide what is installed, and empty files in place of Cython's work,
    which is compiled by no more than a stand-in."""
    target = tmp_path_factory.mktemp("sources")
    built = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info", ".*_cache")
    for folder in ("gnnbench", "plugins", "cython_ext"):
        shutil.copytree(ROOT / folder, target / folder, ignore=built)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "Makefile"):
        shutil.copy(ROOT / name, target)
    for kernel in KERNELS:
        (target / "cython_ext" / f"{kernel}.c").touch()
    return target


@pytest.fixture(scope="module")
def installed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    if not all((ROOT / f"gnnbench/kernels/_{kernel}{SUFFIX}").is_file() for kernel in KERNELS):
        pytest.skip("the kernels are not built beside the code")
    compiler = folder / "compiler"
    compiler.write_text(COMPILER.format(built=ROOT / "gnnbench/kernels"))
    compiler.chmod(0o755)
    return build_wheel(sources, folder / "wheel", CC=str(compiler), LDSHARED=str(compiler))


def run_installed(installed: Path, work: Path, *words: str) -> str:
    """Run Python on the unpacked wheel, in a folder with no sources near it."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(work)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_a_wheel_has_all_files_of_the_sources(installed: Path) -> None:
    for folder, package in (("gnnbench", "gnnbench"), ("plugins/gnnbench_plugins",) * 2):
        for source in (ROOT / folder).rglob("*"):
            if source.suffix in (".py", ".pyi", ".typed", ".toml", ".template"):
                inner = source.relative_to(ROOT / folder)
                assert (installed / Path(package).name / inner).is_file(), f"{source} is left out"


def test_a_wheel_has_every_kernel_compiled(installed: Path) -> None:
    assert KERNELS
    kernels = {path.name for path in installed.rglob("*.so")}
    assert kernels == {f"_{kernel}{SUFFIX}" for kernel in KERNELS}
    assert {path.parent for path in installed.rglob("*.so")} == {installed / "gnnbench/kernels"}
    assert not list(installed.rglob("*.pyx"))
    assert not list(installed.rglob("*.c"))


def test_every_bundled_plugin_is_an_entry_point() -> None:
    bundled = ROOT / "plugins/gnnbench_plugins"
    names = {path.parent.name for path in bundled.glob("*/__init__.py")} - {"studies"}
    names |= {f"studies.{path.parent.name}" for path in bundled.glob("studies/*/__init__.py")}
    assert PROJECT["project"]["entry-points"]["gnnbench"] == {
        name: f"gnnbench_plugins.{name}" for name in names
    }


def test_a_wheel_compares_away_from_its_sources(installed: Path, tmp_path: Path) -> None:
    sizes = "sbm:vertices=200,edges=800,features=8,classes=4"
    options = f"--dataset {sizes} --epochs 1 --platform epyc7763x2-4xa5000 --json -"
    compare = ("-m", "gnnbench", "compare", "--plugins", "hyscale,hongtu")
    runs = json.loads(run_installed(installed, tmp_path, *compare, *options.split()))["runs"]
    assert {run["status"] for run in runs} == {"done"}
    assert {"hyscale", "hongtu"} < {run["strategy"] for run in runs}


def test_without_a_compiler_the_twins_are_installed(sources: Path, tmp_path: Path) -> None:
    shutil.rmtree(sources / "build", ignore_errors=True)  # with the kernels of the other wheel
    installed = build_wheel(sources, tmp_path / "wheel", CC="false")
    assert not list(installed.rglob("*.so"))
    check = "from gnnbench.kernels import dispatch; print(dispatch.compiled(), dispatch.__file__)"
    twins = installed / "gnnbench/kernels/dispatch/__init__.py"
    assert run_installed(installed, tmp_path, "-c", check).split() == ["False", str(twins)]


# --------------------------------------------------------------------------- pins


def read_pins(python: str) -> dict[str, str]:
    """The version that ``constraints.txt`` pins of each package for the first of a Python."""
    pins: dict[str, str] = {}
    for line in ROOT.joinpath("constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        (specifier,) = pin.specifier
        assert specifier.operator == "==", f"{line} is not an exact version"
        first = {"python_version": python, "python_full_version": f"{python}.0"}
        if pin.marker is None or pin.marker.evaluate(first):
            assert pin.name not in pins, f"{pin.name} is pinned twice for Python {python}"
            pins[pin.name] = specifier.version
    return pins


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_is_pinned_within_its_range(python: str) -> None:
    pins = read_pins(python)
    assert pins["torch"] == "2.13.0"
    project = PROJECT["project"]
    required = [
        *project["dependencies"],
        *project["optional-dependencies"]["test"],
        *PROJECT["build-system"]["requires"],
    ]
    for text in required:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            assert requirement.name in pins, f"{text} is not in constraints.txt"
            assert requirement.specifier.contains(pins[requirement.name]), text


def test_pins_are_for_the_first_release_of_a_python_too() -> None:
    """Debian 12's is 3.11.2. Of what is installed here; others cannot be asked."""
    python = ".".join(map(str, sys.version_info[:2]))
    pins = read_pins(python)
    asked = 0
    for found in importlib.metadata.distributions():
        wanted = found.metadata["Requires-Python"]
        if wanted and pins.get(canonicalize_name(found.name)) == found.version:
            asked += 1
            assert SpecifierSet(wanted).contains(f"{python}.0"), f"{found.name}: {wanted}"
    assert asked > len(pins) / 3


def test_pythons_are_those_of_the_metadata() -> None:
    versions = PROJECT["project"]["requires-python"]
    accepts = Requirement(f"python{versions}").specifier
    for minor in range(8, 16):
        assert accepts.contains(f"3.{minor}.1") == (f"3.{minor}" in PYTHONS)
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert tuple(classifiers) == PYTHONS


# --------------------------------------------------------------------------- make


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 13, 0)])
def test_make_refuses_another_python_in_one_sentence(
    version: tuple[int, int, int], tmp_path: Path
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    pretend = f"import sys; sys.version_info = {version}; exec(sys.argv[2])"
    python = tmp_path / "other-python"
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{pretend}' \"$@\"\n")
    python.chmod(0o755)
    done = subprocess.run(
        ["make", "compare", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "gnnbench needs Python 3.10, 3.11 or 3.12" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_names_no_package_index() -> None:
    names = ("Makefile", "constraints.txt", "pyproject.toml", "setup.py", ".ci/run")
    for name in names:
        text = ROOT.joinpath(name).read_text(encoding="utf-8")
        assert "://" not in text, f"{name} names a host"
        assert "index-url" not in text
        assert "find-links" not in text
