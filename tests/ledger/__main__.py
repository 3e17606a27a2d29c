"""``python -m tests.ledger``: which predictions have moved; with ``--write``, the
table anew, and the errors that modelled times are printed with."""

from __future__ import annotations

import argparse
import sys

from gnnbench.model_error import estimate_errors, write_errors
from gnnbench_plugins.studies.validation.ledger import Validation
from tests.ledger import BASELINE, compare, load, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ledger", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what is predicted now")
    options = parser.parse_args()
    entries = Validation().entries()
    moved = compare(load(), entries)
    for line in moved:
        print(line)
    if options.write:
        write(entries)
        write_errors(estimate_errors(entries))
        return 0
    print(f"{len(entries)} predictions: {len(moved)} are not those of {BASELINE.name}")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
