"""Lines in a terminal or a file: wrapped at blanks, padded by cells, plain if the encoding asks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

#: A blank at which no line is broken; printed as a plain one.
TIE = "\N{NO-BREAK SPACE}"
#: Replacements for characters that the encoding lacks.
_PLAIN = str.maketrans(
    {"·": ".", "µ": "u", "█": "#"} | dict.fromkeys("▏▎▍", "") | dict.fromkeys("▌▋▊▉", "#")
)

#: Text of a cell and its style.
Styled = tuple[str, str]


class Writer:
    """Lines to a console; characters that its encoding lacks are replaced by plain ones."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = max(40, console.width)
        try:
            "·▏█µ".encode(console.encoding)
            self._plain = False
        except (UnicodeEncodeError, LookupError):
            self._plain = True

    def line(self, cells: Sequence[Styled]) -> None:
        """Print styled pieces on one line, never wrapped or cut, without blanks at its end."""
        text = Text()
        for content, style in cells:
            text.append(self._encodable(content), style)
        text.rstrip()
        self._console.print(text, soft_wrap=True, highlight=False)

    def blank(self) -> None:
        """Write an empty line."""
        self.line([])

    def paragraph(self, text: str, style: str = "") -> None:
        """Write a text, wrapped to the width."""
        for line in wrap(text, self.width) or [""]:
            self.line([(line, style)])

    def entry(self, title: str, text: str, style: str = "", indent: int = 18) -> None:
        """Print a titled sentence, wrapped under itself; a long title stands above it."""
        lines = wrap(text, max(30, self.width - indent))
        if cell_len(title) > 16:
            for line in wrap(title, self.width - 1):
                self.line([(f" {line}", "bold")])
            title = ""
        for number, line in enumerate(lines):
            titled = number == 0 and title
            lead: Styled = (f" {pad(title, indent - 1)}", "bold") if titled else (" " * indent, "")
            self.line([lead, (line, style)])

    def _encodable(self, text: str) -> str:
        text = text.replace(TIE, " ")
        if not self._plain:
            return text
        return text.translate(_PLAIN).encode("ascii", "replace").decode("ascii")


def wrap(text: str, width: int) -> list[str]:
    """Break lines at blanks only: names and numbers stay whole."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def pad(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """Pad a text with blanks to ``width`` terminal cells."""
    blanks = " " * (width - cell_len(text))
    return text + blanks if align == "left" else blanks + text
