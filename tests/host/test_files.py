"""Files of users: whole or not at all, never another's; and TOML within bounds."""

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gnnbench.errors import GnnbenchError, PlatformError, UsageError
from gnnbench.host.files import FileRefusedError, open_input, publish
from gnnbench.host.toml import LIMIT_BYTES
from gnnbench.machines.describe import load_platform
from gnnbench.report.results.output import check_output, check_outputs, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_when_the_block_ends(tmp_path):
    path = tmp_path / "new"
    with publish(path) as stream:
        stream.write(b"some")
        stream.flush()
        assert not path.exists()
        stream.write(b"thing")
    assert path.read_bytes() == b"something"
    path.chmod(0o640)
    with publish(path) as stream:
        stream.write(b"other")
        stream.flush()
        assert path.read_bytes() == b"something"
    assert path.read_bytes() == b"other"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["new"]


def test_a_new_file_has_the_permissions_that_the_user_gives_to_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        with publish(tmp_path / "new") as stream:
            stream.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("overwrite", [True, False])
def test_nothing_is_left_of_a_block_that_raises(tmp_path, overwrite):
    path = tmp_path / "file"
    if overwrite:
        path.write_bytes(b"precious")

    def write():
        with publish(path, overwrite=overwrite) as stream:
            stream.write(b"x" * 100_000)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert names(tmp_path) == (["file"] if overwrite else [])
    assert not overwrite or path.read_bytes() == b"precious"


def test_what_appears_meanwhile_is_not_replaced_unless_asked(tmp_path):
    path = tmp_path / "file"

    def write_while(other):
        with publish(path, overwrite=False) as stream:
            stream.write(b"mine")
            other()

    with pytest.raises(FileExistsError):
        write_while(lambda: path.write_bytes(b"another's"))
    assert path.read_bytes() == b"another's"
    path.unlink()
    with pytest.raises(FileExistsError):
        write_while(lambda: path.symlink_to(tmp_path / "nowhere"))
    assert names(tmp_path) == ["file"]


KILLED = """
import os, signal, sys
from pathlib import Path
from gnnbench.host.files import publish
with publish(Path(sys.argv[1])) as stream:
    stream.write(b"x" * 100_000)
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"precious")
    done = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"precious"


@pytest.fixture
def small_disk():
    """No file of this process may grow beyond 10,000 bytes: writing ends in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_that_refuses_in_the_middle_leaves_everything_as_it_was(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("precious")
    for path in (old, new):
        with pytest.raises(GnnbenchError) as caught:
            write_text(path, "x" * 100_000)
        assert caught.value.exit_status == 3
        assert str(caught.value) == (
            f"{path} could not be written: the file would be larger than is allowed here."
        )
    assert old.read_text() == "precious"
    assert names(tmp_path) == ["old"]


def test_a_disk_that_is_full_only_when_it_must_keep_the_data(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(GnnbenchError, match=r"out could not be written: the disk is full\.$"):
        write_text(tmp_path / "out", "text")
    assert names(tmp_path) == []


def test_a_full_device_is_one_sentence():
    with pytest.raises(GnnbenchError, match="/dev/full could not be written: the disk is full"):
        write_text(Path("/dev/full"), "text")


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(GnnbenchError, match="a pipe without a reader, so start its reader first"):
        write_text(path, "text")


def test_an_open_pipe_by_its_number_is_written_to():
    """What a shell hands over for ``>(command)``."""
    end, start = os.pipe()
    write_text(Path(f"/dev/fd/{start}"), "text")
    os.close(start)
    with open(end) as stream:
        assert stream.read() == "text"


def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path):
    write_text(tmp_path / "out", "a\udcffb")
    assert (tmp_path / "out").read_text() == "a\\udcffb"


def bad_names(folder):
    loop = folder / "loop"
    loop.symlink_to(loop)
    return {
        "too long": (folder / ("n" * 300), "longer than the file system takes"),
        "path too long": (folder / "/".join(["n" * 200] * 30), "longer than the file system"),
        "null byte": (folder / "a\0b", "null byte"),
        "surrogate": (folder / "a\ud800b", "characters that no file's has"),
        "loop": (loop, "leads back to itself"),
        "below a loop": (loop / "x", "leads back to itself"),
    }


@pytest.mark.parametrize(
    "kind", ["too long", "path too long", "null byte", "surrogate", "loop", "below a loop"]
)
def test_names_that_no_file_can_have_are_one_sentence(tmp_path, kind):
    path, reason = bad_names(tmp_path)[kind]
    with pytest.raises(UsageError, match=reason):
        check_output(path)
    with pytest.raises(UsageError, match=reason):
        write_text(path, "text")
    with pytest.raises(FileRefusedError, match=reason):
        open_input(path)


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        FileRefusedError, match="it is a pipe, which can be read only once, not a file"
    ):
        open_input(tmp_path / "pipe")
    with pytest.raises(FileRefusedError, match="it is a folder, not a file"):
        open_input(tmp_path)
    with pytest.raises(FileRefusedError, match="it is a device, not a file"):
        open_input(Path("/dev/zero"))
    with pytest.raises(FileRefusedError, match="there is no such file"):
        open_input(tmp_path / "absent")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(FileRefusedError):
            open_input(tmp_path / "socket")


def test_a_link_to_nowhere_needs_a_folder_there(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "none" / "file")
    with pytest.raises(UsageError, match="there is no folder"):
        check_output(tmp_path / "link")
    (tmp_path / "none").mkdir()
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "none" / "file").read_text() == "text"


@pytest.mark.parametrize("way", ["same", "dots", "symlink", "hard link", "folder link"])
def test_an_output_may_be_no_input_by_whichever_name(tmp_path, monkeypatch, way):
    (tmp_path / "folder").mkdir()
    data = tmp_path / "data.npz"
    data.write_text("data")
    output = {
        "same": data,
        "dots": tmp_path / "folder" / ".." / "data.npz",
        "symlink": tmp_path / "symlink",
        "hard link": tmp_path / "hard",
        "folder link": tmp_path / "again" / "data.npz",
    }[way]
    (tmp_path / "symlink").symlink_to("data.npz")
    (tmp_path / "hard").hardlink_to(data)
    (tmp_path / "again").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="would be overwritten, and the command reads it"):
        check_outputs([tmp_path / "fine", output], [data])
    with pytest.raises(UsageError, match="would be overwritten"):
        check_outputs([data], [output])
    with pytest.raises(UsageError, match="named for two outputs"):
        check_outputs([data, output])
    check_outputs([output, tmp_path / "fine"], [tmp_path / "absent"])


def test_two_names_of_a_file_that_is_not_there_yet_are_one(tmp_path):
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to("new")
    for other in ("again/new", "link"):
        with pytest.raises(UsageError, match="named for two outputs"):
            check_outputs([tmp_path / "new", tmp_path / other])


def test_the_file_that_standard_output_goes_to_is_no_output(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from gnnbench.report.results.output import check_output\n"
        "check_output(Path(sys.argv[1]))"
    )
    path = tmp_path / "out"
    for name in (path, "/dev/stdout"):
        with path.open("w") as stream:
            done = subprocess.run(
                [sys.executable, "-c", code, name],
                stdout=stream,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert "is where standard output or standard error goes" in done.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("a = " + "[" * 50_000 + "]" * 50_000, "too deep", id="lists"),
        pytest.param("a = " + "{b = " * 50_000, "too deep", id="tables"),
        pytest.param("a" + ".a" * 100_000 + " = 1", "too deep", id="key"),
        pytest.param("[a" + ".a" * 100_000 + "]", "too deep", id="heading"),
        pytest.param("a = 1\n" * (LIMIT_BYTES // 6 + 1), "more than 1,048,576 bytes", id="size"),
        pytest.param("a = " + "9" * 5_000, "not valid TOML", id="digits"),
    ],
)
def test_toml_that_no_description_needs_is_refused(tmp_path, text, reason):
    path = tmp_path / "bomb.toml"
    path.write_text(text)
    with pytest.raises(PlatformError, match=reason):
        load_platform(str(path))
