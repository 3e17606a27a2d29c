"""``python -m tests.stated``: what pages state otherwise than is computed; ``--write`` mends it."""

import argparse
import sys

from tests.stated import ROOT, agrees, find_stated, list_pages, make_text, rewrite


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stated", description=__doc__)
    parser.add_argument("--write", action="store_true", help="state it as it is computed")
    options = parser.parse_args()
    if options.write:
        for page in list_pages():
            if rewrite(page):
                print(f"{page.relative_to(ROOT)}: written anew")
        return 0
    stale = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in list_pages()
        for name, text in find_stated(page)
        if not agrees(text, make_text(name))
    ]
    for line in stale:
        print(f"{line} is not as it is computed")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
