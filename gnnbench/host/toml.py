"""TOML files of users, read within bounds.

A parser builds a table for every part of a dotted key and recurses for every bracket. A file of a
few hundred kilobytes can therefore take gigabytes, or overflow the stack. Both are checked before
parsing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gnnbench.host.files import FileRefusedError, read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Far more than a description of a machine needs.
LIMIT_BYTES = 1 << 20
MAX_DEPTH = 16

#: Strings of the four kinds and comments, in which brackets and dots mean nothing. An unclosed
#: string extends to the end of its line, or of the file, so that this takes linear time.
_OPAQUE = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\Z)'
    r"|'''.*?(?:'''|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
#: A key of more than ``MAX_DEPTH`` parts, in a text with strings replaced by ``s``.
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MAX_DEPTH}}}[\w-]")


def read_toml(path: Path) -> dict[str, object]:
    """Return the content of a TOML file.

    Raises :class:`FileRefusedError`, which says why the file is refused, and where.
    """
    text = read_text(path, LIMIT_BYTES)
    bare = _OPAQUE.sub(lambda match: "" if match[0][0] == "#" else "s", text)
    if _find_depth(bare) > MAX_DEPTH or _LONG_KEY.search(bare):
        raise FileRefusedError(path, f"it nests tables or lists over {MAX_DEPTH} deep")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError among them, and numbers of too many digits
        raise FileRefusedError(path, f"it is not valid TOML: {str(error).rstrip('.')}") from error


def _find_depth(bare: str) -> int:
    """Return the depth of nested brackets and braces in a text without strings and comments."""
    depth = deepest = 0
    for character in re.findall(r"[\[\]{}]", bare):
        depth = depth + 1 if character in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest
