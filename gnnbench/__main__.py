"""``python -m gnnbench``, and the command ``gnnbench``: signals first, then all else."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from gnnbench.host import signals

#: Switches off plugins of torch and of pydantic. To find plugins, both read the entry points of
#: every installed package, and stop at a damaged one.
NO_PLUGINS = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYDANTIC_DISABLE_PLUGINS": "__all__"}


def start() -> NoReturn:
    """Run the command line.

    From here on signals end it with one sentence, even while its modules are imported. Once the
    exit status is known, signals change nothing.
    """
    signals.take()
    if not _has_folder():
        print(
            "gnnbench: error: the current folder was deleted; go to one that is there.",
            file=sys.stderr,
        )
        signals.leave(2)
    for variable, value in NO_PLUGINS.items():
        os.environ.setdefault(variable, value)
    try:
        from gnnbench.cli import main

        main(prog_name="gnnbench")
    except KeyboardInterrupt:
        signals.leave(signals.say())
    except SystemExit as ended:
        signals.leave(ended.code if isinstance(ended.code, int) else 0)
    raise AssertionError("click ends every command")


def _has_folder() -> bool:
    """Return whether the current folder exists.

    Without it, libraries that torch loads abort the process.
    """
    try:
        os.getcwd()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    start()
