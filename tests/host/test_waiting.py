"""Threads of OpenMP wait awake for a moment, unless the user has said how they shall."""

import os
import subprocess
import sys

import pytest

from gnnbench.host.waiting import SPINS, VARIABLES, wait_briefly

#: The command line, with a command that loads torch's OpenMP.
COMMAND = [sys.executable, "-m", "gnnbench", "plugins", "list"]


def displayed(cache, **variables):
    """Return what OpenMP says of itself when the command line first loads it.

    Without a ``cache`` of what plugins offer, the command imports torch.
    """
    chosen = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        COMMAND,
        env={**chosen, "OMP_DISPLAY_ENV": "verbose", "XDG_CACHE_HOME": str(cache), **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="OpenMP is not GCC's here")
def test_the_command_line_has_threads_spin_for_a_moment(tmp_path):
    said = displayed(tmp_path)
    assert f"GOMP_SPINCOUNT = '{SPINS}'" in said
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in said


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="OpenMP is not GCC's here")
def test_what_a_user_has_said_is_left_as_it_is(tmp_path):
    said = displayed(tmp_path, GOMP_SPINCOUNT="77", OMP_WAIT_POLICY="active")
    assert "GOMP_SPINCOUNT = '77'" in said
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in said


def test_one_variable_is_enough_to_have_decided(monkeypatch):
    for decided in VARIABLES:
        for variable in VARIABLES:
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(decided, "1")
        wait_briefly()
        assert [v for v in VARIABLES if v in os.environ] == [decided]
