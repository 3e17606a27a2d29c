"""``python -m gnnbench``, and the command ``gnnbench``: signals first, then everything else."""

from __future__ import annotations

from typing import NoReturn

from gnnbench import signals


def start() -> NoReturn:
    """Run the command line. Ctrl-C and SIGTERM end it in a sentence from here on, also while its
    modules are imported, and change nothing any more once it has its exit status."""
    signals.take()
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
