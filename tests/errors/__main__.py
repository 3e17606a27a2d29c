"""``python -m tests.errors``: which cells are further from their papers; with ``--write``, the file
anew."""

from __future__ import annotations

import argparse
import sys

from tests.errors import TABLES, find_worse, load, measure, run, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.errors", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the errors of now")
    options = parser.parse_args()
    errors = measure(table for name in TABLES for table in run(name))
    worse = find_worse(load(), errors)
    for line in worse:
        print(line)
    if options.write:
        write(errors)
        return 0
    print(f"{len(errors)} cells have an error: {len(worse)} are further from the paper than before")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
