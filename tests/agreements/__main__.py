"""``python -m tests.agreements``: which cells have moved away from the papers, or towards them;
with ``--write``, the table anew. ``--only`` takes some reproductions alone."""

import argparse
import sys

from gnnbench import plugins
from gnnbench.reproduce.agreement import count_outcome, read_outcomes, write_outcomes
from tests.agreements import BASELINE, REPRODUCTIONS, choose, collect_errors, compare, load, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.agreements", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the errors that there are now")
    parser.add_argument("--only", nargs="+", default=REPRODUCTIONS, metavar="NAME")
    options = parser.parse_args()
    registry, found = plugins.load(), {}
    outcomes = {} if options.only is REPRODUCTIONS else dict(read_outcomes())
    names = sorted(registry.reproductions) if options.write and not outcomes else options.only
    for name in names:
        tables = registry.reproduction(name)().run()
        outcomes[name] = count_outcome(tables)
        if name in options.only:
            found.update(collect_errors(tables))
    before = load()
    moved = compare(before, found, options.only)
    for line in moved:
        print(line)
    if options.write:
        replaced = choose(before, options.only)
        kept = {name: error for name, error in before.items() if name not in replaced}
        write(kept | found)
        write_outcomes(outcomes)
        return 0
    print(f"{len(found)} cells: {len(moved)} are not those of {BASELINE.name}")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
