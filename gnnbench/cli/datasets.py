"""``gnnbench datasets``: the shared graphs, and making others fit for comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    SEED,
    FilePath,
    Json,
    check_files,
    has_subcommand,
    open_console,
    print_rows,
    seed_option,
    shared_options,
    write_document,
)
from gnnbench.errors import UsageError

if TYPE_CHECKING:
    from gnnbench.records import Dataset

out_option = click.option(
    "--out",
    "out_path",
    type=FilePath(),
    metavar="FILE.npz",
    help="Where to write it.  [default: the user's cache, where its name resolves]",
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the file where it exists."
)


@click.group(
    "datasets", invoke_without_command=True, short_help="List, describe, import and make datasets."
)
@shared_options
@click.pass_context
def datasets(ctx: click.Context, json_path: Path | None) -> int | None:
    """List, describe, import and make datasets; without a subcommand, list them."""
    return None if has_subcommand(ctx, json_path) else print_list(json_path)


@datasets.command("list")
@shared_options
def list_datasets(json_path: Path | None) -> int:
    """Every dataset that --dataset knows by name."""
    return print_list(json_path)


def print_list(json_path: Path | None) -> int:
    """Files first, then what is made or downloaded when asked for."""
    from gnnbench import datasets as catalogue

    check_files(json_path, files=catalogue.find_all_files())
    entries = catalogue.list_datasets()
    if json_path is not None:
        content: list[Json] = [
            {
                "name": e.name,
                "kind": e.kind,
                "vertices": e.vertices,
                "undirected_edges": e.edges,
                "features": e.features,
                "classes": e.classes,
                "where": e.where,
            }
            for e in entries
        ]
        write_document({"datasets": content}, json_path)
    numbers = [(entry.vertices, entry.edges, entry.features, entry.classes) for entry in entries]
    rows = [
        (e.name, e.kind, *("-" if n is None else f"{n:,}" for n in counts), e.where)
        for e, counts in zip(entries, numbers, strict=True)
    ]
    heading = ("dataset", "kind", "vertices", "edges", "features", "classes", "where")
    print_rows(open_console(json_path), heading, rows)
    return 0


@datasets.command("info")
@click.argument("name", metavar="NAME|FILE.npz")
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="For graphs that are made.",
)
@shared_options
def info(name: str, seed: int, json_path: Path | None) -> int:
    """Load a dataset, check it, and describe it."""
    from gnnbench import datasets as catalogue

    check_files(json_path, dataset=name)
    print_facts(catalogue.describe(catalogue.load(name, seed=seed)), json_path)
    return 0


@datasets.command("import")
@click.argument("file", type=FilePath())
@click.option("--name", help="The dataset's name.  [default: the file's]")
@click.option(
    "--features",
    type=FilePath(),
    metavar="FILE",
    help="Features: .npy, .pt, a sparse .npz of SciPy, or text with an id before each row.",
)
@click.option(
    "--labels",
    type=FilePath(),
    metavar="FILE",
    help="A class for each vertex: .npy, .pt, or text with an id before each.",
)
@click.option(
    "--split",
    type=FilePath(),
    metavar="FILE",
    help="train, val and test: masks or ids by these names in a .npz or .pt, or text with an id "
    "before each word.",
)
@click.option("--string-ids", is_flag=True, help="Vertices have names instead of numbers.")
@click.option(
    "--keep-isolated",
    is_flag=True,
    help="Keep vertices that have no edge: those that features, labels or split know of, else "
    "every number up to the largest id.",
)
@out_option
@overwrite_option
@shared_options
def import_graph(
    file: Path,
    name: str | None,
    features: Path | None,
    labels: Path | None,
    split: Path | None,
    string_ids: bool,
    keep_isolated: bool,
    out_path: Path | None,
    overwrite: bool,
    json_path: Path | None,
) -> int:
    """Make a dataset of an edge list, an edge_index (.npy, .pt), a Matrix Market file or a raw
    .npz.

    The graph is made symmetric, sorted, and free of self loops and duplicates; what was changed,
    ignored or made up is said. Where vertices are numbered anew, the ids that they had are written
    beside the dataset, one on each line.
    """
    from gnnbench import datasets as catalogue
    from gnnbench.results.output import write_text

    stem = catalogue.choose_name(file, name)
    target = choose_target(stem, out_path, overwrite)
    ids_path = target.with_suffix(".ids.txt")
    read = [path for path in (file, features, labels, split) if path is not None]
    check_files(json_path, target, ids_path, files=read)
    extras = catalogue.Extras(features, labels, split, string_ids, keep_isolated)
    made = catalogue.import_graph(file, extras, name=name)
    if os.path.lexists(ids_path) and not overwrite:
        raise UsageError(
            f"{ids_path} exists and would not be that of {target.name}; allow it with --overwrite."
        )
    beside: dict[str, str] = {}
    if made.ids is not None:
        write_text(ids_path, "".join(f"{each}\n" for each in made.ids.tolist()))
        beside["ids"] = str(ids_path)
    else:
        ids_path.unlink(missing_ok=True)
    write_dataset(made.dataset, target, overwrite, json_path, beside)
    return 0


@datasets.command("make")
@click.argument("name")
@seed_option
@out_option
@overwrite_option
@shared_options
def make(
    name: str, seed: int, out_path: Path | None, overwrite: bool, json_path: Path | None
) -> int:
    """Make or download the dataset NAME and keep it as a file.

    Such as rmat:vertices=1M,edges=16M, sbm, or a stand-in like ogbn-products:0.01.
    """
    from gnnbench import datasets as catalogue

    stem = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)
    target = choose_target(stem, out_path, overwrite)
    check_files(json_path, target, dataset=name)
    write_dataset(catalogue.load(name, seed=seed), target, overwrite, json_path)
    return 0


def choose_target(stem: str, out_path: Path | None, overwrite: bool) -> Path:
    """The file to write, refused before the work starts when it cannot be."""
    from gnnbench import datasets as catalogue
    from gnnbench.results.output import check_output, make_folder

    target = out_path
    if target is None:
        folder = catalogue.cache_folder()
        make_folder(folder)
        target = folder / f"{stem}.npz"
    check_output(target)
    if target.suffix != ".npz":
        raise UsageError(f"{target}: datasets are stored as .npz; give a name that ends so.")
    if os.path.lexists(target) and not overwrite:
        raise UsageError(f"{target} exists; give another --out, or allow it with --overwrite.")
    return target


def write_dataset(
    dataset: Dataset,
    target: Path,
    overwrite: bool,
    json_path: Path | None,
    beside: Mapping[str, str] | None = None,
) -> None:
    """Save a dataset and describe what was saved, in it and ``beside`` it."""
    from gnnbench import datasets as catalogue

    catalogue.save_npz(dataset, target, overwrite=overwrite)
    print_facts({"file": str(target), **(beside or {}), **catalogue.describe(dataset)}, json_path)


def print_facts(
    facts: Mapping[str, str | int | float | tuple[str, ...]], json_path: Path | None
) -> None:
    """Facts one to a line; several sentences under each other."""
    rows = []
    for name, fact in facts.items():
        title = name.replace("_", " ")
        if isinstance(fact, tuple):
            rows += [(title if i == 0 else "", line) for i, line in enumerate(fact)]
        elif isinstance(fact, float):
            rows.append((title, f"{fact:.4g}"))
        else:
            rows.append((title, f"{fact:,}" if isinstance(fact, int) else fact))
    print_rows(open_console(json_path), (), rows)
    if json_path is not None:
        write_document(facts, json_path)
