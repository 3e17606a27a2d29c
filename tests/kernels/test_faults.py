"""A mapped file that becomes shorter while it is read ends the process in a sentence."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from gnnbench.kernels import native

pytestmark = pytest.mark.skipif(native.load("faults") is None, reason="kernels are not compiled")

#: Maps a file, makes it shorter, and reads it in a thread; with a second argument after the mapping
#: that is watched has been replaced by one that is not.
PROGRAM = """
import sys, threading
from pathlib import Path
import numpy as np
from gnnbench.datasets.npy import ArrayFile
from gnnbench.host.mapped import map_array
file = ArrayFile.find(Path(sys.argv[1]))
array = file.map()
if len(sys.argv) > 2:
    del array
    with open(sys.argv[1], "rb") as stream:
        array = map_array(stream, file.offset, file.header.dtype, file.header.shape)
open(sys.argv[1], "wb").close()
thread = threading.Thread(target=lambda: array.sum())
thread.start()
thread.join()
"""


@pytest.mark.parametrize("watched", [True, False])
def test_reading_what_is_gone_is_a_sentence_for_watched_mappings_alone(tmp_path, watched):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((1000, 64)))
    words = [sys.executable, "-c", PROGRAM, path, *([] if watched else ["not watched"])]
    ended = subprocess.run(words, capture_output=True, text=True)
    if not watched:
        assert (ended.returncode, ended.stderr) == (-signal.SIGBUS, "")
        return
    assert ended.returncode == 3
    assert ended.stderr == (
        f"gnnbench: error: {path} became shorter while it was read, or its disk failed; run again "
        f"with a copy.\n"
    )
