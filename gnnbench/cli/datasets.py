"""``gnnbench datasets``: the shared graphs, and datasets made of other graphs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnbench.cli.options import (
    Json,
    ListingGroup,
    check_files,
    make_option,
    open_console,
    print_rows,
    shared_options,
    write_document,
)
from gnnbench.cli.values import FilePath
from gnnbench.errors import UsageError
from gnnbench.jobs.job import Job
from gnnbench.jobs.options import list_options

if TYPE_CHECKING:
    from gnnbench.datasets import Imported, ScalingChoice
    from gnnbench.records import Dataset

#: Delimiter characters by the words that ``--delimiter`` takes.
DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "blank": " "}

seed_option = make_option(list_options(Job)["seed"], "datasets")
out_option = click.option(
    "--out",
    "out_path",
    type=FilePath(),
    metavar="FILE.npz|FOLDER",
    help="File or folder to write. Large arrays of a folder stay on disk.  [default: the user's "
    "cache, in which gnnbench finds datasets by name]",
)
scaling_option = make_option(replace(list_options(Job)["scaling"], default=None), "datasets")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the file where it exists."
)


@click.group("datasets", cls=ListingGroup, short_help="List, describe, import and make datasets.")
def datasets() -> None:
    """List, describe, import and make datasets; without a subcommand, list them."""


@datasets.command("list")
@shared_options
def list_datasets(json_path: Path | None) -> int:
    """List every dataset that --dataset knows by name.

    Files come first, then datasets that are made or downloaded on demand.
    """
    from gnnbench import datasets as catalogue

    files = [each for path in catalogue.find_all_files() for each in catalogue.list_files(path)]
    check_files(json_path, files=files)
    entries = catalogue.list_datasets()
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
@seed_option
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
    help="Features: .npy, .pt, a sparse .npz of SciPy, or a text or .parquet with an id per row.",
)
@click.option(
    "--labels",
    type=FilePath(),
    metavar="FILE",
    help="A class for each vertex: .npy, .pt, a text with one per line, or a text or .parquet "
    "with an id before each.",
)
@click.option(
    "--split",
    type=FilePath(),
    metavar="FILE",
    help="Split: masks or ids named train, val and test in a .npz or .pt; or these words, one "
    "per line of a text, or with an id before each in a text or .parquet.",
)
@click.option("--string-ids", is_flag=True, help="Vertices have names instead of numbers.")
@click.option(
    "--keep-isolated",
    is_flag=True,
    help="Keep vertices without an edge if they occur in the features, labels or split. Without "
    "such files, keep every number up to the largest id.",
)
@click.option(
    "--directed",
    is_flag=True,
    help="Keep the direction of edges, source first: a vertex aggregates from its in-neighbours.  "
    "[default: every edge goes both ways]",
)
@click.option(
    "--weighted",
    is_flag=True,
    help="Keep the weights of edges for models that take them (gcn): the third column of a list, "
    "or the values of a matrix.",
)
@click.option(
    "--delimiter",
    type=click.Choice(tuple(DELIMITERS)),
    help="Delimiter of the columns of an edge list; blank is any number of blanks.  "
    "[default: detected]",
)
@click.option(
    "--heading/--no-heading",
    default=None,
    help="Whether the first line of an edge list has the names of its columns.  "
    "[default: detected]",
)
@click.option(
    "--check", "check_only", is_flag=True, help="Print what would be read, and write nothing."
)
@out_option
@scaling_option
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
    directed: bool,
    weighted: bool,
    delimiter: str | None,
    heading: bool | None,
    check_only: bool,
    out_path: Path | None,
    scaling: ScalingChoice | None,
    overwrite: bool,
    json_path: Path | None,
) -> int:
    """Make a dataset from a graph in a file, or in a folder in the format of planetoid or OGB.

    Edge lists are texts with two ids per line, also compressed (.gz, .bz2, .xz, .zst), or .parquet.
    Matrices are Matrix Market (.mtx), MATLAB (.mat), and .npz of SciPy, shchur or raw arrays.
    Graphs are GraphML, GEXF, GML, METIS (.graph), PyG's Data (.pt) and DGL's .bin. An edge_index is
    .npy or .pt.

    The graph is sorted, and self loops and duplicates are removed. It is made symmetric unless
    --directed is given. The output says what was changed, ignored or made up. If vertices are
    renumbered, their old ids are written beside the dataset, one per line.
    """
    from gnnbench import datasets as catalogue

    extras = catalogue.Extras(
        features, labels, split, string_ids, keep_isolated, directed, weighted,
        *(None if delimiter is None else DELIMITERS[delimiter], heading),
    )  # fmt: skip
    named = [path for path in (file, features, labels, split) if path is not None]
    read = [each for path in named for each in (path, *catalogue.list_files(path))]
    if check_only:
        check_files(json_path, files=read)
        print_read(catalogue.import_graph(file, extras, name=name), json_path)
        return 0
    stem = catalogue.choose_name(file, name)
    target, in_folder = choose_target(stem, out_path, scaling, overwrite)
    ids_path = target.with_name(f"{target.name.removesuffix('.npz')}.ids.txt")
    check_files(json_path, *catalogue.list_files(target), ids_path, files=read)
    if in_folder:
        made = catalogue.import_folder(
            file, target, extras, name=name, scaling=scaling or "auto", overwrite=overwrite
        )
    else:
        made = catalogue.import_graph(file, extras, name=name)
    write_ids(made, target, ids_path, overwrite=overwrite)
    if not in_folder:
        catalogue.save_npz(made.dataset, target, overwrite=overwrite)
    print_written(
        made.dataset, target, json_path, {} if made.ids is None else {"ids": str(ids_path)}
    )
    return 0


def write_ids(made: Imported, target: Path, ids_path: Path, *, overwrite: bool) -> None:
    """Write the vertices' old ids beside ``target`` if the import renumbered them.

    Raises ``UsageError`` if another file is in the way.
    """
    from gnnbench.report.results.output import write_text

    if os.path.lexists(ids_path) and not overwrite:
        raise UsageError(
            f"{ids_path} exists and would not belong to {target.name}; allow it with --overwrite."
        )
    if made.ids is not None:
        write_text(ids_path, "".join(f"{each}\n" for each in made.ids.tolist()))
    else:
        ids_path.unlink(missing_ok=True)


@datasets.command("make")
@click.argument("name")
@seed_option
@out_option
@scaling_option
@overwrite_option
@shared_options
def make(
    name: str,
    seed: int,
    out_path: Path | None,
    scaling: ScalingChoice | None,
    overwrite: bool,
    json_path: Path | None,
) -> int:
    """Make or download the dataset NAME and keep it as a file, or as a folder.

    Examples: rmat:vertices=1M,edges=16M, sbm, or a stand-in like ogbn-products:0.01.
    """
    from gnnbench import datasets as catalogue

    stem = "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)
    target, in_folder = choose_target(stem, out_path, scaling, overwrite)
    check_files(json_path, *catalogue.list_files(target), dataset=name)
    if in_folder:
        made = catalogue.make_folder(
            name, target, seed=seed, scaling=scaling or "auto", overwrite=overwrite
        )
    else:
        made = catalogue.load(name, seed=seed)
        catalogue.save_npz(made, target, overwrite=overwrite)
    print_written(made, target, json_path)
    return 0


def choose_target(
    stem: str, out_path: Path | None, scaling: ScalingChoice | None, overwrite: bool
) -> tuple[Path, bool]:
    """Return the file or folder to write, and whether it is a folder.

    Raises ``UsageError`` before any work starts if it cannot be written.
    """
    from gnnbench import datasets as catalogue
    from gnnbench.report.results.output import check_output, make_folder

    target = out_path
    if target is None:
        folder = catalogue.cache_folder()
        make_folder(folder)
        target = folder / f"{stem}.npz"
    in_folder = not target.suffix
    check_output(target.parent / f"{target.name}.ids.txt" if in_folder else target)
    if target.suffix not in ("", ".npz"):
        raise UsageError(
            f"{target}: datasets are stored as .npz, or as folders; give a name that ends in .npz, "
            f"or one without an ending for a folder."
        )
    if scaling is not None and not in_folder:
        raise UsageError(
            f"{target}: --scale-features has no effect on a file, whose features are scaled when "
            f"used. Leave it out, or give --out the name of a folder, without an ending."
        )
    if os.path.lexists(target) and not overwrite:
        raise UsageError(f"{target} exists; give another --out, or allow it with --overwrite.")
    if in_folder and os.path.lexists(target) and not catalogue.is_folder(target):
        raise UsageError(f"{target} exists and is no dataset; give another --out.")
    return target, in_folder


def print_read(made: Imported, json_path: Path | None) -> None:
    """Describe what an import would write."""
    from gnnbench import datasets as catalogue

    facts = {
        "read as": made.read_as,
        "first edges": made.first_edges,
        **catalogue.describe(made.dataset),
    }
    print_facts(facts, json_path)


def print_written(
    dataset: Dataset,
    target: Path,
    json_path: Path | None,
    beside: Mapping[str, str] | None = None,
) -> None:
    """Describe what was saved, in ``target`` and ``beside`` it."""
    from gnnbench import datasets as catalogue

    print_facts({"file": str(target), **(beside or {}), **catalogue.describe(dataset)}, json_path)


def print_facts(
    facts: Mapping[str, str | int | float | tuple[str, ...]], json_path: Path | None
) -> None:
    """Print facts, one to a line; several sentences stand under each other."""
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
    write_document(facts, json_path)
