"""``python -m tests.mutants``: which faults the tests see; ``tests.mutants`` says how."""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import (
    NURSERY,
    ROOT,
    Mutant,
    StaleError,
    Verdict,
    copy_tree,
    judge,
    list_guards,
    load,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="TEXT", help="those that say this")
    parser.add_argument("--likely", action="store_true", help="run the likely tests alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at a time")
    parser.add_argument("--list", action="store_true", help="list the faults, and run nothing")
    parser.add_argument("--files", action="store_true", help="list what each test file guards")
    options = parser.parse_args()
    mutants = load()
    only = options.only or [""]
    chosen = [mutant for mutant in mutants if any(text in mutant.breaks for text in only)]
    if not chosen:
        print(f"no mutant says {only[0]!r}; see --list.", file=sys.stderr)
        return 2
    try:
        for mutant in chosen:
            mutant.find(ROOT)
    except StaleError as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        for mutant in chosen:
            print(mutant.breaks)
        return 0
    if options.files:
        for file, guarded in list_guards(mutants).items():
            print(f"{file}: {guarded}")
        return 0
    NURSERY.set_forkserver_preload(["tests.mutants.libraries"])
    survived = []
    for number, verdict in enumerate(judge_all(chosen, options.jobs, options.likely), 1):
        outcome = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
        place = f"{number}/{len(chosen)}, {verdict.seconds:.0f} s"
        print(f"{verdict.mutant.breaks} ({place}): {outcome}", flush=True)
        if not verdict.killed_by:
            survived.append(verdict.mutant)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} killed")
    for mutant in survived:
        print(f"survived: {mutant.breaks}")
    return 1 if survived else 0


def judge_all(mutants: Sequence[Mutant], jobs: int, likely_only: bool) -> Iterator[Verdict]:
    """Judge ``jobs`` faults at a time, each in a tree of its own."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            tree = Path(directory) / f"tree{number}"
            tree.mkdir()
            copy_tree(tree)
            trees.put(tree)

        def judge_one(mutant: Mutant) -> Verdict:
            tree = trees.get()
            try:
                return judge(mutant, tree, likely_only=likely_only)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(judge_one, mutants)


if __name__ == "__main__":
    sys.exit(main())
