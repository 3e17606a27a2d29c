"""``--resume``: the finished items of a command that was stopped, found by the command itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from gnnbench.cli.options import CommandLine
from gnnbench.host import resume, signals

#: Words that change nothing of what a command does.
_IDLE = ("--resume", "--quiet", "--debug")
#: Options of files that the command writes.
_OUTPUTS = ("--json", "--html", "--trace", "--out")

resume_option = click.option(
    "--resume",
    "resumed",
    is_flag=True,
    help="Continue this command where it was stopped. Finished items are not run again.",
)


@contextmanager
def resumable(line: CommandLine, *, resumed: bool) -> Iterator[None]:
    """Keep the finished items of a command while the block runs, and use them if it is resumed.

    Raises ``UsageError`` if it is resumed and nothing is kept.
    """
    words = tuple(word for word in line.words if word not in _IDLE)
    key = _find_key(words)
    if key is None:
        if resumed:
            raise click.UsageError("nothing is kept without a home folder; set HOME.")
        yield
        return
    with resume.keeping(resume.find_folder(key), again=resumed) as keeper:
        if resumed and not keeper.count:
            raise click.UsageError(
                "no finished items of this command are kept for this code and these files; run it "
                "without --resume."
            )
        signals.hint_by(lambda: _tell(keeper.count))
        yield


def _tell(count: int) -> str:
    if not count:
        return ""
    items = "1 finished item is kept" if count == 1 else f"{count} finished items are kept"
    return f"; {items}, continue with --resume"


def _find_key(words: tuple[str, ...]) -> str | None:
    """Return a text that changes with a command, its files, and the code; None without a home."""
    from gnnbench.plugins.index import find_index

    index = find_index()
    if index is None:
        return None
    inputs = [
        word
        for before, word in zip(("", *words), words, strict=False)
        if not {before, word.partition("=")[0]}.intersection(_OUTPUTS)
    ]
    named = [text for word in inputs for text in (word, *word.split(","), word.partition("=")[2])]
    return "\0".join((*words, os.getcwd(), index.stem, *map(_describe, dict.fromkeys(named))))


def _describe(text: str) -> str:
    """Return the size and the time of a file, if the text names one."""
    with suppress(OSError, ValueError):
        found = Path(text).stat()
        return f"{text} {found.st_size} {found.st_mtime_ns}" if text else ""
    return ""
