"""TOML files of users."""

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
#: A key of many parts, for each of which the parser makes a table.
_LONG_KEY = re.compile(r"(?m)^[\[ \t]*(?:[\w-]+[ \t]*\.[ \t]*){16}")


def read_toml(path: Path) -> dict[str, object]:
    """Return the content of a TOML file.

    Raises :class:`FileRefusedError`, which says why the file is refused, and where.
    """
    text = read_text(path, LIMIT_BYTES)
    if _LONG_KEY.search(text):
        raise FileRefusedError(path, "it nests tables too deep")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise FileRefusedError(path, "it nests tables or lists too deep") from error
    except ValueError as error:  # TOMLDecodeError among them, and numbers of too many digits
        raise FileRefusedError(path, f"it is not valid TOML: {str(error).rstrip('.')}") from error
