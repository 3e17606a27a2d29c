"""``python -m tests.ledger``: which predictions have moved.

``--write`` makes the table anew, and the errors that modelled times are printed with.
``--leave-out`` finds the errors of each source by constants without it, which takes long.
"""

import argparse
import re
import sys

from gnnbench.price.model_error import estimate_errors, write_errors
from gnnbench_plugins.studies.validation.leave_out import write_left_out
from gnnbench_plugins.studies.validation.ledger import make_entries
from gnnbench_plugins.studies.validation.prediction import predict
from gnnbench_plugins.studies.validation.published import read_sources
from tests.ledger import BASELINE, compare, load, write
from tests.ledger.leave_out import describe, leave_out


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ledger", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what is predicted now")
    parser.add_argument("--only", metavar="REGEX", help="of measurements whose ids it is found in")
    parser.add_argument(
        "--leave-out", action="store_true", help="leave each source out of every fit, and keep that"
    )
    options = parser.parse_args()
    if options.leave_out:
        sources = read_sources()
        found = [leave_out(each, sources, print) for each in sources]
        for each in found:
            print(describe(each))
        write_left_out(found)
        return 0
    if options.write and options.only:
        parser.error("--write keeps the whole table; leave out --only")
    wanted = re.compile(options.only or "")
    entries = make_entries(
        {
            cell.id: predict(cell)
            for published in read_sources()
            for cell in published.cell
            if wanted.search(cell.id)
        }
    )
    before = {name: predicted for name, predicted in load().items() if wanted.search(name)}
    moved = compare(before, entries)
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
