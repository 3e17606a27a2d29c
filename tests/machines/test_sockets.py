"""A host of several sockets: read from a platform file, written, shown, refused."""

from pathlib import Path

import pytest

from gnnbench.errors import PlatformError
from gnnbench.machines import load_platform, show_platform, to_toml

SERVER = "epyc7543x4-4xa100"
SOCKETS = 'sockets = { value = 4, source = "s" }\n'
BANDWIDTH = 'socket_bandwidth = { value = 19.2, unit = "GB/s", source = "s" }\n'


def write(tmp_path: Path, entries: str) -> str:
    """HongTu's server with other entries about its sockets; returns the file's path."""
    lines = to_toml(load_platform(SERVER)).splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("socket")]
    place = kept.index("[host]\n") + 1
    path = tmp_path / "sockets.toml"
    path.write_text("".join([*kept[:place], entries, *kept[place:]]), encoding="utf-8")
    return str(path)


def test_the_paper_s_server_has_a_gpu_at_each_of_four_sockets() -> None:
    """HongTu §7.1; between sockets slower than PCIe, as its §2.1 says, by how much it does not."""
    platform = load_platform(SERVER)
    assert [platform.socket(device) for device in platform.accelerators] == [0, 1, 2, 3]
    between = platform.host.memory.socket_bandwidth_bytes_per_s
    assert between < platform.link("host", "gpu0").bandwidth_bytes_per_s
    assert platform.mark("host.socket_bandwidth").kind == "assumed"


def test_sockets_are_shown() -> None:
    rows = {row.key: row.value for row in show_platform(load_platform(SERVER))}
    assert (rows["host.sockets"], rows["host.socket_bandwidth"]) == ("4", "9.60 GB/s")


def test_without_sockets_there_is_one(tmp_path: Path) -> None:
    host = load_platform(write(tmp_path, "")).host
    assert (host.memory.sockets, host.memory.socket_bandwidth_bytes_per_s) == (1, 0.0)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (SOCKETS, "[host] has no socket_bandwidth; give both, or neither for a single socket."),
        (BANDWIDTH, "[host] has no sockets; give both, or neither for a single socket."),
        (
            SOCKETS.replace("4", "1") + BANDWIDTH,
            "[host] has a single socket; take out sockets and socket_bandwidth.",
        ),
        (SOCKETS.replace("4", "0") + BANDWIDTH, "sockets of [host] is 0; it must be above zero."),
    ],
)
def test_half_a_description_is_refused(tmp_path: Path, entries: str, sentence: str) -> None:
    with pytest.raises(PlatformError) as error:
        load_platform(write(tmp_path, entries))
    assert str(error.value).endswith(sentence)
