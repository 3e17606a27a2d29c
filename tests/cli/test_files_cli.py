"""Files in and out of every command: nothing that is read is overwritten, what others wrote is
shown and never obeyed, and whatever cannot be a file is one sentence."""

import errno
import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gnnbench.comparison
import gnnbench.machines.probe as probing
from gnnbench.cli.screen import Output
from gnnbench.datasets import build, save_npz
from gnnbench.errors import GnnbenchError
from gnnbench.machines.describe import BUNDLED, FALLBACK
from tests.commands import one_sentence, read_document

BIDI = "\u202e"
#: Colours, a window's title, a one-byte control sequence, reversed writing.
HOSTILE = f"\x1b[31mred\x1b]0;owned\x07 \x9b2J {BIDI}evil [red]x[/] [/]"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The user's cache, empty and out of the way."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "gnnbench" / "datasets"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def files(tmp_path):
    """A dataset, a platform, a plugin and an edge list."""
    ring = np.arange(12)
    made = build("ring", np.stack((ring, (ring + 1) % 12)))
    save_npz(made, tmp_path / "ring.npz")
    (tmp_path / "mine.toml").write_text((BUNDLED / f"{FALLBACK}.toml").read_text())
    (tmp_path / "plug.py").write_text(
        "from gnnbench.hookspecs import hookimpl\n\n\n"
        "@hookimpl\ndef gnnbench_strategy():\n    return []\n"
    )
    (tmp_path / "ring.txt").write_text("".join(f"{i} {(i + 1) % 12}\n" for i in range(12)))
    (tmp_path / "link").symlink_to("ring.npz")
    return tmp_path


COMPARE = "compare --plugins reference --dataset ring.npz --platform mine.toml --plugin plug.py"
PLAN = "plan hongtu --dataset ring.npz --platform mine.toml --plugin plug.py"


@pytest.mark.parametrize(
    "words",
    [
        *(
            f"{COMPARE} {option} {file}"
            for option in ("--json", "--html", "--trace")
            for file in ("ring.npz", "mine.toml", "plug.py", "link")
        ),
        f"{COMPARE} --set memory.file=ring.txt --json ring.txt",
        "ablate hongtu --dataset ring.npz --html ring.npz",
        *(f"{PLAN} --json {file}" for file in ("ring.npz", "mine.toml", "plug.py", "link")),
        "datasets info ring.npz --json ring.npz",
        "datasets import ring.txt --json ring.txt",
        "datasets import ring.npz --out ring.npz --overwrite",
        "datasets import ring.npz --out link.npz --overwrite",
        "datasets make ring.npz --out ring.npz --overwrite",
        "datasets make ring.npz --out new.npz --json ring.npz",
        "platforms show mine.toml --json mine.toml",
        "plugins list --plugin plug.py --json plug.py",
        "plugins show hongtu --plugin plug.py --json plug.py",
        "plugins check reference --plugin plug.py --json plug.py",
        "plugins check reference --dataset ring.npz --json ring.npz",
        "plugins list --plugin pack/__init__.py --json pack/part.py",
        "datasets import pack --json pack/part.py",
        "reproduce --plugin plug.py --json plug.py",
    ],
)
def test_what_a_command_reads_is_not_overwritten(run, files, monkeypatch, words):
    (files / "link.npz").symlink_to("ring.npz")
    (files / "pack").mkdir()
    for name in ("__init__.py", "part.py"):
        (files / "pack" / name).write_text("raise AssertionError('it began')")
    monkeypatch.chdir(files)
    monkeypatch.setattr(gnnbench.comparison, "compare", None)
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    assert "would be overwritten, and the command reads it" in one_sentence(run(*words.split()))
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before


def test_datasets_and_modules_by_name_are_not_overwritten_either(run, files, cache, monkeypatch):
    (files / "ring.npz").rename(cache / "ring.npz")
    monkeypatch.syspath_prepend(files)
    for words in (
        ("datasets", "list", "--json", cache / "ring.npz"),
        ("datasets", "info", "ring", "--json", cache / "ring.npz"),
        ("datasets", "make", "ring", "--overwrite"),
        ("plan", "hongtu", "--dataset", "ring", "--json", cache / "ring.npz"),
        ("platforms", "show", FALLBACK, "--json", BUNDLED / f"{FALLBACK}.toml"),
        ("platforms", "list", "--json", BUNDLED / f"{FALLBACK}.toml"),
        ("plugins", "list", "--plugin", "plug", "--json", files / "plug.py"),
    ):
        assert "would be overwritten" in one_sentence(run(*words))


@pytest.mark.parametrize(
    "words",
    [
        f"{COMPARE} --json out --html ./out",
        f"{COMPARE} --html out --trace out",
        "datasets make sbm --out out.npz --json out.npz",
        "datasets import ring.txt --out out.npz --json out.npz",
        "platforms probe --out out --json out",
        f"platforms probe --save --out cache/gnnbench/platforms/{socket.gethostname()}/local.toml",
        "reproduce hongtu-table5 --html out --json out",
    ],
)
def test_two_outputs_are_two_files(run, files, monkeypatch, words):
    monkeypatch.chdir(files)
    monkeypatch.setattr(gnnbench.comparison, "compare", None)
    monkeypatch.setattr(probing, "probe", None)
    assert "is named for two outputs" in one_sentence(run(*words.split()))
    assert not (files / "out").exists()


def test_the_second_of_two_that_make_one_file_is_refused(run, files, monkeypatch):
    """The other one ends while this one writes: its file stays."""
    out = files / "out.npz"
    write = np.lib.format.write_array

    def write_slowly(*given, **options):
        out.write_bytes(b"another's")
        write(*given, **options)

    monkeypatch.setattr(np.lib.format, "write_array", write_slowly)
    line = one_sentence(run("datasets", "make", files / "ring.npz", "--out", out))
    assert "the file exists" in line
    assert out.read_bytes() == b"another's"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../../escaped", "leads to another folder"),
        ("/tmp/escaped", "leads to another folder"),
        ("..", "begins with '.'"),
        (".hidden", "begins with '.'"),
        ("-x", "begins with '-'"),
        ("x.npz", "ends as a file's does"),
        ("", "is empty"),
        (" ", "is empty"),
        ("a\nb", "characters that cannot be seen"),
        (f"a{BIDI}b", "characters that cannot be seen"),
        ("n" * 300, "is longer than 200 bytes"),
    ],
)
def test_a_dataset_stays_in_the_cache_whatever_it_is_called(run, files, cache, name, why):
    outside = cache.parent.parent / "escaped.npz"
    outside.write_bytes(b"precious")
    before = sorted(files.rglob("*"))
    words = ("datasets", "import", files / "ring.txt", f"--name={name}", "--overwrite")
    assert why in one_sentence(run(*words))
    assert outside.read_bytes() == b"precious"
    assert sorted(files.rglob("*")) == before


IMPOSSIBLE = {
    "long": "n" * 300,
    "long path": "/".join(["n" * 200] * 30),
    "loop": "loop",
    "no UTF-8": os.fsdecode(b"\xff\xfe"),
    "null": "a\0b",
    "half": "a\ud800b",
}


INPUTS = (
    "compare --plugins reference --dataset {} --json out",
    "compare --plugins reference --dataset {}.npz",
    "compare --plugins reference --dataset ring.npz --platform {}",
    "compare --plugins reference --dataset ring.npz --platform {}.toml --html out",
    "compare --plugins reference --dataset ring.npz --plugin {}.py --json out",
    "compare --plugins reference --dataset ring.npz --plugin {}/x.py",
    "compare --plugins {} --dataset ring.npz",
    "compare --plugins reference --dataset ring.npz --set {0}.{0}={0}",
    "datasets import {}",
    "datasets import {}.mtx",
    "datasets import {}.npz",
    "datasets make {}",
    "datasets info {}",
    "platforms show {}",
    "platforms show {}/x.toml",
    "plugins show {}",
    "reproduce {}",
    "plan {} --dataset ring.npz",
)
OUTPUTS = (
    "datasets list --json {}",
    "compare --plugins reference --dataset ring.npz --html {}",
    "compare --plugins reference --dataset ring.npz --trace {}/x",
    "datasets make sbm --out {}.npz",
    "platforms probe --out {}",
    "plugins new half-half --out {}",
    "plugins new half-half --out ring.npz/{}",
)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        *((words, kind) for words in INPUTS for kind in IMPOSSIBLE),
        *((words, kind) for words in OUTPUTS for kind in IMPOSSIBLE if kind != "no UTF-8"),
    ],
)
def test_what_no_file_is_called_is_one_sentence(run, files, monkeypatch, kind, words):
    monkeypatch.chdir(files)
    monkeypatch.setattr(probing, "probe", None)
    for name in ("loop", "loop.npz", "loop.mtx", "loop.toml", "loop.py"):
        (files / name).symlink_to(name)
    one_sentence(run(*(word.format(IMPOSSIBLE[kind]) for word in words.split())))


def test_names_that_are_not_utf8_are_taken_and_reach_every_output(run, files, tmp_path):
    odd = os.fsdecode(b"r\xffng")
    (files / "ring.npz").rename(files / f"{odd}.npz")
    out = files / f"{odd}.json"
    result = run("datasets", "info", files / f"{odd}.npz", "--json", out)
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text())["name"] == odd
    assert "r\\udcffng" in result.stdout
    (files / "ring.txt").rename(files / f"{odd}.txt")
    assert run("datasets", "import", files / f"{odd}.txt", "--name", "fine").exit_code == 0
    outputs = [tmp_path / f"out.{kind}" for kind in ("json", "html", "trace")]
    result = run(
        *("compare", "--plugins", "reference", "--dataset", files / f"{odd}.npz"),
        *("--epochs", "1", "--hidden", "4", "--threads", "1", "--no-check"),
        *("--json", outputs[0], "--html", outputs[1], "--trace", outputs[2]),
    )
    assert result.exit_code == 0, result.output
    assert json.loads(outputs[0].read_text())["dataset"]["name"] in (odd, "r\\udcffng")
    assert all(path.read_text() for path in outputs)


@pytest.mark.parametrize(
    ("words", "unbuffered"), [("platforms list", ""), ("platforms list --json -", "1")]
)
def test_standard_output_that_is_full_or_closed(words, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "gnnbench", *words.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    said = "gnnbench: error: standard output could not be written: the disk is full."
    assert done.stderr.splitlines()[-1] == said
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run(command, stdout=start, stderr=subprocess.PIPE, text=True, check=False)
    os.close(start)
    assert done.returncode == 0
    assert "rror" not in done.stderr


def test_a_failure_that_somebody_swallowed_is_not_forgotten():
    class Full(io.StringIO):
        refusals = 1

        def write(self, text):
            self.refusals -= 1
            if self.refusals >= 0:
                raise OSError(errno.ENOSPC, "no room")
            return super().write(text)

    output = Output(Full())
    for _ in range(2):
        with pytest.raises(GnnbenchError, match=r"standard output .* the disk is full"):
            output.write("text")
    with pytest.raises(GnnbenchError, match="standard output"):
        output.flush()


def test_characters_that_the_encoding_lacks_are_shown_by_their_escapes():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    output = Output(stream)
    output.write("a·b\udcff\n")
    output.flush()
    assert stream.buffer.getvalue() == b"a\\xb7b\\udcff\n"
    assert output.encoding == "ascii"


def test_the_status_is_right_where_nothing_can_be_said():
    command = f"{sys.executable} -m gnnbench"
    for words, status in (("nonsense 2>/dev/full", 2), ("platforms list >&-", 0)):
        assert subprocess.run(f"{command} {words}", shell=True, check=False).returncode == status


#: A plan that twelve vertices are enough for.
PLAIN = ("hongtu", "--set", "sampler.chunks_per_partition=1")

PLUGIN = """
from dataclasses import replace

from gnnbench.hookspecs import hookimpl
from gnnbench_plugins import reference

HOSTILE = {hostile!r}


@hookimpl
def gnnbench_strategy():
    theirs = reference.gnnbench_strategy()[:1]
    return [replace(one, name="odd", summary=HOSTILE, source=HOSTILE) for one in theirs]
"""


def acting(text):
    """Characters that a terminal would obey, but for the ends of lines."""
    return [c for c in text if not c.isprintable() and c != "\n"]


@pytest.mark.parametrize("words", ["list", "show odd", "list --json -"])
def test_a_plugins_text_is_shown_and_not_obeyed(run, files, words):
    (files / "odd.py").write_text(PLUGIN.format(hostile=HOSTILE))
    result = run("plugins", *words.split(), "--plugin", files / "odd.py")
    assert result.exit_code == 0, result.output
    text = result.stdout + result.stderr
    assert acting(text) == []
    flat = "".join(text.split()).replace("\\x07", "")  # which rich leaves out
    assert "\\x1b[31mred\\x1b]0;owned\\x9b2J\\u202eevil[red]x[/][/]" in flat


def test_a_refusal_is_shown_and_not_obeyed(run, files):
    (files / "odd.py").write_text(f"raise ValueError({HOSTILE!r})")
    line = one_sentence(run("plugins", "--plugin", files / "odd.py"))
    assert acting(line) == []
    assert "\\x1b[31mred" in line
    assert "[red]x[/] [/]" in line
    assert acting(one_sentence(run("datasets", "info", f"{HOSTILE}.npz"))) == []
    assert acting(one_sentence(run(HOSTILE))) == []
    shown = run("plugins", "--plugin", files / "odd.py", "--debug").stderr
    assert "Traceback" in shown
    assert acting(shown) == []


def test_a_datasets_text_is_shown_and_not_obeyed(run, files):
    with np.load(files / "ring.npz") as stored:
        arrays = dict(stored)
    path = files / f"{HOSTILE.replace('/', '')}.npz"
    np.savez(files / "odd.npz", **(arrays | {"notes": np.array([HOSTILE, "a\nb"])}))
    (files / "odd.npz").rename(path)
    for words in (("datasets", "info", path), ("plan", *PLAIN, "--dataset", path)):
        result = run(*words)
        assert result.exit_code == 0, result.output
        assert acting(result.stdout + result.stderr) == []
        assert "\\x1b[31mred" in result.stdout
    assert "[red]x[/]" in run("datasets", "info", path).stdout


def test_a_listed_datasets_name_is_shown_and_not_obeyed(run, files, cache):
    (cache / f"{HOSTILE.replace('/', '')}\nmore.npz").write_bytes((files / "ring.npz").read_bytes())
    result = run("datasets")
    assert result.exit_code == 0
    assert acting(result.stdout) == []
    assert "more.npz" in result.stdout
    assert not any(line.startswith("more") for line in result.stdout.splitlines())


def test_platforms_with_markup_are_shown_as_they_are(run, files):
    text = (files / "mine.toml").read_text()
    name = next(line for line in text.splitlines() if line.startswith("name = "))
    (files / "[red].toml").write_text(text.replace(name, 'name = "[/] [red]mine\\u001b[0m"', 1))
    result = run("platforms", "show", files / "[red].toml")
    assert result.exit_code == 0, result.output
    assert "[/] [red]mine\\x1b[0m: " in result.stdout


def test_one_bad_file_does_not_hide_the_others(run, files, cache):
    good = (files / "ring.npz").read_bytes()
    (cache / "good.npz").write_bytes(good)
    (cache / "cut.npz").write_bytes(good[: len(good) // 2])
    (cache / "text.npz").write_text("0 1\n")
    (cache / "folder.npz").mkdir()
    (cache / "loop.npz").symlink_to("loop.npz")
    os.mkfifo(cache / "pipe.npz")
    np.savez(cache / "flat.npz", indptr=np.int64(3), indices=np.zeros(3, np.int32))
    np.savez(cache / "labels.npz", indptr=np.arange(3), indices=np.zeros(2), y=np.array(["a", "b"]))
    np.savez(cache / "pickled.npz", indptr=np.array([{}], dtype=object), indices=np.zeros(3))
    result = run("datasets", "list", "--json", "-")
    where = {e["name"]: e["where"] for e in read_document(result)["datasets"]}
    vertices = {e["name"]: e["vertices"] for e in json.loads(result.stdout)["datasets"]}
    assert where["good"] == str(cache / "good.npz")
    assert vertices["good"] == 12
    for name, reason in (
        ("cut", "it may have been cut off"),
        ("text", "it is no zip archive of arrays"),
        ("folder", "it is a folder"),
        ("loop", "a link that leads back to itself"),
        ("pipe", "it is a pipe"),
        ("flat", "it has no indptr of one dimension"),
        ("labels", "y has dtype <U1"),
        ("pickled", "pickled Python objects, which are never loaded"),
    ):
        assert "cannot be used: " in where[name]
        assert reason in where[name]


def test_a_data_folder_that_cannot_be_read_has_no_datasets(run, monkeypatch):
    monkeypatch.setenv("GNNBENCH_DATA", os.pathsep.join(["n" * 300, "/dev/null", "/nowhere"]))
    assert run("datasets", "list").exit_code == 0
    assert "no dataset 'ring'" in one_sentence(run("datasets", "info", "ring"))


#: The command line in a process whose files may have a few kilobytes.
LIMITED = """
import resource, sys
import gnnbench_plugins.hongtu
from gnnbench.__main__ import start
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
start()
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("datasets make sbm --out wide.npz", "wide.npz could not be written: the file would be"),
        ("datasets make sbm --out wide", "wide could not be written: the disk took a part of it"),
        ("plugins list --json list.json", "list.json could not be written: the file would be"),
    ],
)
def test_a_disk_without_room_is_a_sentence_and_leaves_nothing(files, words, says):
    before = sorted(files.rglob("*"))
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, *words.split()],
        cwd=files,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": "/nonexistent"},
    )
    assert (ended.returncode, ended.stdout) == (3, ""), ended.stderr
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert sorted(files.rglob("*")) == before


def test_a_temporary_file_without_room_is_a_sentence(run, files, monkeypatch):
    def load(*_, **__):
        raise OSError("4096 requested and 512 written")

    monkeypatch.setattr(gnnbench.datasets, "load", load)
    said = one_sentence(run("datasets", "info", files / "ring.npz"), 3)
    assert "a file could not be written: the disk took a part of it only" in said
