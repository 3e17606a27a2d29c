"""``python -m tests.mutants``: which faults the tests see; ``tests.mutants`` says how."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutants import ROOT, Stale, copy_tree, judge, load


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this one")
    parser.add_argument("--likely", action="store_true", help="run the likely tests alone")
    parser.add_argument("--list", action="store_true", help="list the faults, and run nothing")
    options = parser.parse_args()
    mutants = load()
    if unknown := sorted(set(options.only) - {mutant.name for mutant in mutants}):
        print(f"there is no mutant {unknown[0]!r}; see --list.", file=sys.stderr)
        return 2
    chosen = [mutant for mutant in mutants if not options.only or mutant.name in options.only]
    try:
        for mutant in chosen:
            mutant.find(ROOT)
    except Stale as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}: {mutant.breaks}")
        return 0
    survived = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        root = Path(directory) / "tree"
        root.mkdir()
        copy_tree(root)
        for number, mutant in enumerate(chosen, 1):
            verdict = judge(mutant, root, likely_only=options.likely)
            outcome = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
            place = f"{number}/{len(chosen)}, {verdict.seconds:.0f} s"
            print(f"{mutant.name} ({place}): {outcome}", flush=True)
            if not verdict.killed_by:
                survived.append(mutant)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} killed")
    for mutant in survived:
        print(f"survived: {mutant.name}: {mutant.breaks}")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
