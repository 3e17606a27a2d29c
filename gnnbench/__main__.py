"""``python -m gnnbench``."""

from gnnbench.cli import main

if __name__ == "__main__":
    main(prog_name="gnnbench")
