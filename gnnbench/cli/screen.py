"""What reaches the terminal: text of strangers shown as text, and a reader who leaves.

Names, notes, summaries and reasons come from files and plugins that somebody else wrote. Whatever
of them a terminal would obey (escape sequences, characters that turn the direction of writing) is
shown by its escape instead, ``\\x1b`` and so on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar

import click

from gnnbench.errors import GnnbenchError
from gnnbench.files import explain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleRenderable, RenderHook

T = TypeVar("T")

#: Controls, formatting characters (among them those that turn the direction), halves of surrogate
#: pairs, and separators of lines and paragraphs: nothing that is seen, everything that acts.
_ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
#: The width of a table that is not shown on a terminal, where COLUMNS says nothing else.
_FILE_WIDTH = 120


def escape(text: str, keep: str = "") -> str:
    """``text`` with every character that a terminal would obey as its escape, but those in
    ``keep``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character not in keep and unicodedata.category(character) in _ACTING
        else character
        for character in text
    )


def complain(text: str) -> None:
    """A line on standard error that begins with the program's name; lost where that is full."""
    try:
        click.echo(f"gnnbench: {escape(text)}", err=True)
    except OSError:
        # What is still in its buffer would fail once more when Python ends, and change the status.
        _send_nowhere(sys.stderr)


def make_console(stream: IO[str]) -> Console:
    """A console that shows every text as it is written: no markup, no colours for numbers, and
    nothing that the terminal would obey but rich's own styles."""
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(
            file=stream, highlight=False, markup=False, emoji=False, width=_FILE_WIDTH
        )
    console.push_render_hook(_make_hook())
    return console


def _make_hook() -> RenderHook:
    """What escapes every text between its layout and the console."""
    from rich.console import ConsoleOptions, RenderHook
    from rich.segment import Segment

    class Shown:
        def __init__(self, inner: ConsoleRenderable) -> None:
            self._inner = inner

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
            for text, style, control in console.render(self._inner, options):
                yield Segment(text if control else escape(text, keep="\n"), style, control)

    class Escaping(RenderHook):
        def process_renderables(
            self, renderables: list[ConsoleRenderable]
        ) -> list[ConsoleRenderable]:
            return [Shown(inner) for inner in renderables]

    return Escaping()


class Output:
    """A text stream to whoever reads it, in place of ``sys.stdout``.

    A reader who leaves (``gnnbench plugins | head -1``) is no error: what follows is dropped. A
    disk that refuses is one sentence. Characters that the stream's encoding lacks become escapes.
    Everything else is the stream's own.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        #: Raised again by all that follows: somebody may have caught it who only tried the stream.
        self._failure: GnnbenchError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text``; raises ``GnnbenchError`` where it cannot be."""
        try:
            return self._do(lambda: self._stream.write(text), len(text))
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            plain = text.encode(encoding, "backslashreplace").decode(encoding)
            return self._do(lambda: self._stream.write(plain), len(text))

    def flush(self) -> None:
        """Hand on what was written; raises ``GnnbenchError`` where it cannot be."""
        self._do(self._stream.flush, None)

    def _do(self, call: Callable[[], T], otherwise: T) -> T:
        if self._failure is not None:
            raise self._failure
        try:
            return call()
        except BrokenPipeError:
            self.drop()
            return otherwise
        except OSError as error:
            reason = f"standard output could not be written: {explain(error)}."
            self._failure = GnnbenchError(reason)
            raise self._failure from error

    @property
    def failed(self) -> bool:
        """Whether something that was written is lost."""
        return self._failure is not None

    def drop(self) -> None:
        """Send what is still to come nowhere, so that nothing fails again when Python ends."""
        _send_nowhere(self._stream)


def _send_nowhere(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def guarded_output() -> Iterator[None]:
    """``sys.stdout`` as an :class:`Output` while the block runs, and flushed at its end."""
    before = sys.stdout
    if before is None:  # closed before the program began
        yield
        return
    output = Output(before)
    sys.stdout = output
    try:
        yield
        output.flush()
    finally:
        sys.stdout = before
        if output.failed:
            output.drop()
