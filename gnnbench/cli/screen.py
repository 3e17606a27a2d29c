r"""Output to the terminal: escapes untrusted text and tolerates a reader who leaves.

Names, notes, summaries and reasons come from files and plugins by other authors. Anything in them
that a terminal would obey is shown as its escape, such as ``\x1b``. This covers escape sequences
and characters that change the writing direction.
"""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar

import click

from gnnbench.cli.progress import make_room
from gnnbench.errors import GnnbenchError
from gnnbench.host.files import explain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleRenderable, RenderHook

T = TypeVar("T")

#: Unicode categories that act on a terminal and show nothing: controls, format characters (also
#: those that change the writing direction), surrogates, and line and paragraph separators.
_ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
#: Width of a table that is not shown on a terminal, unless COLUMNS is set.
_FILE_WIDTH = 120


def escape(text: str, keep: str = "") -> str:
    """Return ``text`` with characters that a terminal would obey escaped, except ``keep``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character not in keep and unicodedata.category(character) in _ACTING
        else character
        for character in text
    )


def complain(text: str) -> None:
    """Print a line with the program's name on standard error; it is lost if that is full."""
    make_room()
    try:
        click.echo(f"gnnbench: {escape(text)}", err=True)
    except OSError:
        # The rest of its buffer would fail again when Python exits, and change the status.
        _send_nowhere(sys.stderr)


def make_console(stream: IO[str]) -> Console:
    """Return a console that shows every text as written.

    It has no markup, no colours for numbers, and no terminal controls except rich's own styles.
    """
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(
            file=stream, highlight=False, markup=False, emoji=False, width=_FILE_WIDTH
        )
    console.push_render_hook(_make_hook())
    return console


def _make_hook() -> RenderHook:
    """Return a hook that escapes every text between its layout and the console."""
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
    """A text stream to the reader of the output, in place of ``sys.stdout``.

    A reader who leaves (``gnnbench plugins | head -1``) is no error: later output is dropped. A
    disk that refuses gives one sentence. Characters that the stream's encoding lacks become
    escapes. All other attributes are the stream's.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        #: Raised again by every later write, because a caller may have caught the first one.
        self._failure: GnnbenchError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text``; raises ``GnnbenchError`` if it cannot be written."""
        make_room(text)
        try:
            return self._do(lambda: self._stream.write(text), len(text))
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            plain = text.encode(encoding, "backslashreplace").decode(encoding)
            return self._do(lambda: self._stream.write(plain), len(text))

    def flush(self) -> None:
        """Flush the stream; raises ``GnnbenchError`` if that fails."""
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
        """Whether some written text is lost."""
        return self._failure is not None

    def drop(self) -> None:
        """Send all later output to the null device, so that Python's exit cannot fail again."""
        _send_nowhere(self._stream)


def _send_nowhere(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def guarded_output() -> Iterator[None]:
    """Replace ``sys.stdout`` by an :class:`Output` while the block runs, then flush it."""
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
