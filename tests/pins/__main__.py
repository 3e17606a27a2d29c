"""``python -m tests.pins``: what has changed; with ``--write``, the table anew."""

import argparse
import re
import sys

from gnnbench.errors import DatasetError, MissingDependencyError
from tests.pins import TABLE, compare, load, read_list, record, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pins", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what is computed now")
    parser.add_argument(
        "--only", metavar="PATTERN", default="", help="combinations in whose line this is found"
    )
    options = parser.parse_args()
    combinations = read_list()
    chosen = [each for each in combinations if re.search(options.only, str(each))]
    if not chosen:
        print(f"no combination has {options.only!r} in its line.", file=sys.stderr)
        return 2
    before = load()
    # What is not in the list any more goes; what cannot be run here stays.
    table = {name: before[name] for name in map(str, combinations) if name in before}
    count = 0
    for each in chosen:
        try:
            found = record(each)
        except (DatasetError, MissingDependencyError) as error:
            print(f"{each}: left out: {error}", flush=True)
            continue
        differences = compare(each, before.get(str(each)), found)
        count += len(differences)
        for difference in differences:
            print(difference, flush=True)
        if differences:
            table[str(each)] = found
    stale = sorted(set(before) - set(table))
    for name in stale:
        print(f"{name}: in {TABLE.name}, and not in the list")
    if options.write:
        write(table)
        return 0
    print(f"{len(chosen)} combinations: {count} values differ from {TABLE.name}")
    return 1 if count or stale else 0


if __name__ == "__main__":
    sys.exit(main())
