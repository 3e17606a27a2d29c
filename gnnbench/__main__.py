"""``python -m gnnbench``, and the command ``gnnbench``: signals first, then everything else."""

from __future__ import annotations

import os
from typing import NoReturn

from gnnbench import signals

#: Switches off plugins of torch and of pydantic. To find them, both read the entry points of every
#: installed package, and stop at a damaged one.
NO_PLUGINS = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYDANTIC_DISABLE_PLUGINS": "__all__"}


def start() -> NoReturn:
    """Run the command line. Ctrl-C and SIGTERM end it in a sentence from here on, also while its
    modules are imported, and change nothing any more once it has its exit status."""
    signals.take()
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


if __name__ == "__main__":
    start()
