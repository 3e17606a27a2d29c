"""HP-GNN's design phase from the command line: ``python -m gnnbench_plugins.hpgnn FOLDER``."""

import sys
from pathlib import Path
from typing import Literal, get_args

import click

from gnnbench.errors import UsageError
from gnnbench_plugins.hpgnn.operators import OFF_THE_SHELF
from gnnbench_plugins.hpgnn.program import (
    GNN,
    Density,
    Program,
    Sampler,
    SamplerName,
    generate_design,
)


def parse_numbers(text: str, what: str) -> list[int]:
    """Parse ``"10,25"`` into numbers; raise ``UsageError`` for any other text."""
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{what} is {text!r}; give whole numbers with commas, such as 10,25."
        ) from None


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--model", type=click.Choice(sorted(OFF_THE_SHELF)), default="GCN", show_default=True)
@click.option("--widths", default="602,128,41", show_default=True, help="f^0 .. f^L.")
@click.option(
    "--sampler",
    type=click.Choice(get_args(SamplerName)),
    default="NeighborSampler",
    show_default=True,
)
@click.option(
    "--budgets",
    default="10,25",
    show_default=True,
    help="Neighbours of layers 1 .. L, the sizes of layers 0 .. L, or the size of a subgraph.",
)
@click.option("--targets", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option(
    "--density",
    type=(float, float),
    default=None,
    help="kappa's scale and exponent, for samplers other than NeighborSampler.",
)
@click.option("--board", default="u250", show_default=True, help="A board's name or .toml file.")
@click.option(
    "--scope",
    type=click.Choice(("die", "board")),
    default="die",
    show_default=True,
    help="Whether n and m are one die's, or the whole board's as published designs count them.",
)
def generate(
    folder: Path,
    model: str,
    widths: str,
    sampler: SamplerName,
    budgets: str,
    targets: int,
    density: tuple[float, float] | None,
    board: str,
    scope: Literal["die", "board"],
) -> None:
    """Explore designs for a model and a sampler, and write the best one's code into FOLDER."""
    sizes, dims = parse_numbers(budgets, "--budgets"), parse_numbers(widths, "--widths")
    kappa = None if density is None else Density(*density)
    program = Program(
        Sampler(sampler, len(dims) - 1, sizes, targets, kappa),
        GNN(model, dims),
        board=board,
        scope=scope,
    )
    generated = generate_design(program)
    written = generated.write(folder)
    best = generated.sweep.best
    click.echo(
        f"n = {best.design.n}, m = {best.design.m} a {scope} of {generated.board.name}, "
        f"{best.vertices_per_s / 1e6:.1f} M vertices/s [modelled]; {len(written)} files in "
        f"{folder}."
    )


def start() -> int:
    """Run the command; return 2, after one sentence, if nothing can be generated."""
    try:
        generate.main(prog_name="python -m gnnbench_plugins.hpgnn", standalone_mode=False)
    except UsageError as error:
        click.echo(f"error: {error}", err=True)
        return 2
    except click.ClickException as error:
        error.show()
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(start())
