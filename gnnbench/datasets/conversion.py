"""Data sets written to folders, in memory that grows with their vertices and not with their edges.

Graphs come from edge lists, from arrays of edges, from ``.npz`` files, and from R-MAT; others are
made in memory and written then. Edges are sorted in files beside what is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import cast

import numpy as np
import scipy

from gnnbench.datasets.alignment import (
    Attached,
    align_features,
    align_labels,
    align_split,
    find_places,
    read_attached,
)
from gnnbench.datasets.archive import Archive
from gnnbench.datasets.attachments import Ids
from gnnbench.datasets.catalogue import load, verified_folder
from gnnbench.datasets.construct import (
    RANDOM_FEATURES,
    Masks,
    annotate,
    as_float_features,
    check_shape,
    describe_random_features,
    draw_random_features,
    make_random_labels,
    make_split,
)
from gnnbench.datasets.edge_lists import EdgeList, find_edge_list, note_doubts, read_edges
from gnnbench.datasets.folder import (
    list_arrays,
    load_folder,
    new_folder,
    write_manifest,
)
from gnnbench.datasets.imports import (
    Extras,
    Imported,
    as_pairs,
    choose_name,
    find_format,
    find_ids,
    find_numbers,
    import_graph,
    number_vertices,
)
from gnnbench.datasets.npy import ArrayFile, ArrayWriter, cut_rows
from gnnbench.datasets.npz import as_integers, read_npz
from gnnbench.datasets.raw import Numbering
from gnnbench.datasets.scaling import (
    ScalingChoice,
    choose_scaling,
    describe_scaling,
    refuse_columns,
    scale_pieces,
    scale_sparse_rows,
)
from gnnbench.datasets.sorting import KeyFiles, sort_edges
from gnnbench.datasets.streaming import Digests, find_rows
from gnnbench.datasets.synthetic import (
    RMAT_NOTE,
    choose_kept,
    describe_rmat,
    draw_rmat_pieces,
    draw_until,
    pack_pairs,
    parse_size,
)
from gnnbench.datasets.topology import MAX_VERTICES, check_offsets, sort_unique
from gnnbench.errors import DatasetError
from gnnbench.host.mapped import AnyArray
from gnnbench.records import Dataset, FloatArray, Graph, IntArray

#: Of so many rows drawn at random, every column is nearly of mean 0 and deviation 1.
_ENOUGH_ROWS = 1000

Pairs = Iterable[tuple[IntArray, IntArray]]


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A graph whose ``num_edges`` edges are read once, piece by piece.

    Vertices are 0, 1, 2, ... A ``directed`` graph stays so. A source that lists all its vertices is
    ``complete``. Dense features are ``pieces`` of rows, in order; absent features are drawn at
    random.
    """

    num_vertices: int
    num_edges: int
    edges: Pairs
    origin: str
    notes: tuple[str, ...]
    pieces: Callable[[], Iterator[AnyArray]] | None = None
    sparse: scipy.sparse.csr_matrix | None = None
    labels: IntArray | None = None
    masks: Masks | None = None
    numbering: Numbering = field(default_factory=Numbering)
    report_repairs: bool = True
    directed: bool = False


# --------------------------------------------------------------------------- the two ways in


def import_folder(
    file: Path,
    path: Path,
    extras: Extras | None = None,
    *,
    name: str | None = None,
    scaling: ScalingChoice = "auto",
    overwrite: bool = False,
) -> Imported:
    """Import the graph in ``file`` as a data set in the folder ``path``.

    The data set equals the one that ``import_graph`` makes in memory, with features scaled by
    ``scaling``. Edge lists, ``.npy`` and gnnbench's ``.npz`` are read in pieces, unless vertices
    have names or edges weights. All other formats are read into memory. Raises
    :class:`DatasetError`, and :class:`GnnbenchError` where the disk refuses.
    """
    name, extras = choose_name(file, name), extras or Extras()
    with new_folder(path, overwrite=overwrite) as folder:
        kind = find_format(file, extras)
        listed = kind in ("array", "edges") and not (extras.string_ids or extras.weighted)
        if listed or (kind == "gnnbench" and not _has_weights(file)):
            attached = read_attached(
                extras.features, extras.labels, extras.split, extras.string_ids, mapped=True
            )

            def open_source(scratch: Path, draw: Callable[[int], None]) -> _Source:
                if listed:
                    source = _open_pairs(file, extras, attached, scratch, draw)
                else:
                    source = _open_npz(file, extras)
                return _attach(source, attached)

            ids = _write(folder, path, name, open_source, scaling)
        else:
            made = import_graph(file, extras, name=name)
            ids = made.ids
            _store(folder, made.dataset, scaling, Digests(directed=made.dataset.graph.directed))
    return Imported(load_folder(path, verified_folder(), checked=True), ids)


def make_folder(
    spec: str,
    path: Path,
    *,
    seed: int = 0,
    scaling: ScalingChoice = "auto",
    overwrite: bool = False,
) -> Dataset:
    """Write the data set ``spec`` as the folder ``path``; ``load`` gives an equal data set.

    R-MAT graphs are made in files, all others in memory. Raises the errors of ``load``, and
    :class:`GnnbenchError` where the disk refuses.
    """
    held = None if spec.partition(":")[0] == "rmat" else load(spec, seed=seed)
    with new_folder(path, overwrite=overwrite) as folder:
        if held is not None:
            _store(folder, held, scaling, Digests(directed=held.graph.directed))
        else:
            _write(folder, path, spec, lambda scratch, _: _draw_rmat(spec, seed, scratch), scaling)
    return load_folder(path, verified_folder(), checked=True)


# --------------------------------------------------------------------------- sources


def _has_weights(file: Path) -> bool:
    with Archive(file) as archive:
        return "weights" in archive.names


def _open_npz(file: Path, extras: Extras) -> _Source:
    where, stored = str(file), read_npz(file, left_out=("indices", "x"))
    num_vertices = len(stored.indptr) - 1
    with Archive(file) as archive:
        names = archive.names
        num_edges = archive.header("indices").shape[0]
        check_offsets(where, stored.indptr, num_edges)
        if "x" in names:
            check_shape(where, "x", archive.header("x").shape, num_vertices)

    def read() -> Pairs:
        begin = 0
        with Archive(file) as archive:
            for piece in archive.pieces("indices"):
                columns = as_integers(where, "indices", piece)
                if len(columns) and not 0 <= columns.min() <= columns.max() < num_vertices:
                    raise DatasetError(
                        f"{where}: indices go from {columns.min():,} to {columns.max():,}, outside "
                        f"0 to {num_vertices - 1:,}; number from 0 and store every one that is "
                        f"used."
                    )
                yield columns, find_rows(stored.indptr, begin, len(columns))
                begin += len(columns)

    def read_features() -> Iterator[AnyArray]:
        with Archive(file) as archive:
            yield from archive.pieces("x")

    return _Source(
        num_vertices,
        num_edges,
        read(),
        where,
        stored.notes,
        pieces=read_features if "x" in names else None,
        sparse=stored.features,
        labels=stored.labels,
        masks=stored.masks,
        numbering=Numbering(complete=True),
        directed=stored.directed or extras.directed,
    )


def _open_pairs(
    file: Path, extras: Extras, attached: Attached, scratch: Path, draw: Callable[[int], None]
) -> _Source:
    """Open an edge list or an array of edges; a copy of its ids goes to ``scratch``.

    Random features are drawn meanwhile (:func:`_draw_aside`).
    """
    notes: tuple[str, ...] = ()
    found: EdgeList | None = None
    if file.suffix == ".npy":
        stored = as_pairs(file, ArrayFile.find(file).map())
        parts: Iterable[IntArray] = (part.astype(np.int64) for part in cut_rows(stored))
    else:
        found = find_edge_list(file, delimiter=extras.delimiter, heading=extras.heading)
        notes = found.notes
        parts = (cast("IntArray", ends) for ends in read_edges(found))
    copied = scratch / "pairs.npy"
    with ArrayWriter(copied, np.int64, (2,)) as writer:

        def keep(part: IntArray) -> IntArray:
            writer.append(part)
            return part

        ids = find_ids(map(keep, parts), draw if attached.features is None else None)
    pairs = ArrayFile.find(copied)
    if found is not None:
        notes = (*notes, *note_doubts(found, pairs.map()))
    known, said, renumbered = number_vertices(file, ids, notes, attached, extras.keep_isolated)
    number = find_numbers(known)

    def read() -> Pairs:
        for part in pairs.pieces():
            src, dst = number(cast("IntArray", part)).T
            yield src, dst

    return _Source(
        len(known),
        pairs.header.shape[0],
        read(),
        f"imported from {file.name}",
        said,
        numbering=Numbering(renumbered=renumbered, complete=False),
        directed=extras.directed,
    )


def _draw_rmat(spec: str, seed: int, scratch: Path) -> _Source:
    """Draw the graph of ``synthetic.make_rmat`` into files, with 9 bytes an edge in memory."""
    size, where = parse_size(spec), f"dataset {spec!r}"
    rng = np.random.default_rng((seed, 0))
    (scratch / "drawn").mkdir()
    files = KeyFiles(scratch / "drawn", (size.vertices**2).bit_length(), size.edges)

    def draw_more(count: int) -> int:
        drawn = draw_rmat_pieces(rng, count, size.vertices)
        files.add(lambda ends: pack_pairs(*ends, size.vertices).astype(np.uint64), drawn)
        return sum(files.read(lambda keys: len(sort_unique(keys))))

    found = draw_until(where, size.edges, draw_more)
    kept = choose_kept(rng, found, size.edges)
    shuffled = rng.permutation(size.vertices)

    def read() -> Pairs:
        begin = 0
        for keys in files.read(lambda keys: sort_unique(keys).astype(np.int64), last=True):
            src, dst = np.divmod(keys[kept[begin : begin + len(keys)]], size.vertices)
            begin += len(keys)
            yield shuffled[src], shuffled[dst]

    labels = make_random_labels(size.vertices, size.classes, seed)
    return _Source(
        size.vertices,
        size.edges,
        read(),
        describe_rmat(seed),
        (RMAT_NOTE,),
        pieces=lambda: draw_random_features((size.vertices,), size.features, seed),
        labels=labels,
        masks=make_split(labels, seed),
        report_repairs=False,
    )


def _attach(source: _Source, attached: Attached) -> _Source:
    """Return the graph with the vertex data of other files."""
    known = source.numbering.renumbered
    ids: Ids = np.arange(source.num_vertices, dtype=np.int64) if known is None else known
    notes = source.notes
    if attached.features is not None:
        rows = attached.features.rows
        if isinstance(rows, np.ndarray):
            places = find_places(attached.features, ids, complete=source.numbering.complete)
            step = max(1, (1 << 22) // max(1, rows.shape[1]))
            begins = range(0, source.num_vertices, step)
            source = replace(
                source,
                sparse=None,
                pieces=lambda: (rows[places[begin : begin + step]] for begin in begins),
            )
        else:
            sparse = align_features(attached.features, ids, complete=source.numbering.complete)
            source = replace(source, pieces=None, sparse=sparse)
    if attached.labels is not None:
        labels, said = align_labels(attached.labels, ids, complete=source.numbering.complete)
        source, notes = replace(source, labels=labels), (*notes, *attached.notes, *said)
    if attached.split is not None:
        masks = align_split(attached.split, ids, complete=source.numbering.complete)
        source = replace(source, masks=masks)
    return replace(source, notes=notes)


# --------------------------------------------------------------------------- writing


def _write(
    folder: Path,
    path: Path,
    name: str,
    open_source: Callable[[Path, Callable[[int], None]], _Source],
    scaling: ScalingChoice,
) -> Ids | None:
    """Fill ``folder``, which will stand at ``path``; the ids that vertices had."""
    scratch, into = folder / "scratch", folder / "indices.npy"
    keys = scratch / "keys"
    keys.mkdir(parents=True)
    with _draw_aside(folder) as draw:
        source = open_source(scratch, draw)
        if not 0 < source.num_vertices <= MAX_VERTICES:
            raise DatasetError(
                f"{name}: {source.num_vertices:,} vertices is outside 1 to {MAX_VERTICES:,}; "
                f"number them from 0 without gaps."
            )
        if source.pieces is None and source.sparse is None:
            draw(source.num_vertices)
        indptr, repairs = sort_edges(
            keys,
            source.num_vertices,
            source.num_edges,
            source.edges,
            into,
            directed=source.directed,
        )
    shutil.rmtree(scratch)
    if not indptr[-1]:
        raise DatasetError(f"{name}: every edge is a self loop; a GNN needs at least one other.")
    indices = ArrayFile.find(into)
    found = Digests(directed=source.directed)
    found.store(folder, "indptr", cut_rows(indptr))
    found.follow("indices", indices.pieces(), len)
    features, said, made_up = _write_features(folder, path, source, found)
    dataset = annotate(
        name,
        Graph(indptr, indices.map(), source.directed),  # type: ignore[arg-type]
        features=features,
        labels=source.labels,
        masks=source.masks,
        origin=source.origin,
        notes=(*source.notes, *(repairs.sentences() if source.report_repairs else ()), *said),
        made_up=made_up,
        checked=source.sparse is None,
    )
    if scaling == "auto" and made_up and source.num_vertices >= _ENOUGH_ROWS:
        scaling = "none"
    _store(folder, dataset, scaling, found)
    return source.numbering.renumbered


@contextmanager
def _draw_aside(folder: Path) -> Iterator[Callable[[int], None]]:
    """Have a thread write random features while the body runs."""
    counts: SimpleQueue[int | None] = SimpleQueue()
    failed = Event()

    def write() -> None:
        with ArrayWriter(folder / "x.npy", np.float32, (RANDOM_FEATURES,)) as writer:
            for rows in draw_random_features(iter(counts.get, None), RANDOM_FEATURES):
                if failed.is_set():
                    return
                writer.append(rows)

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        try:
            yield counts.put
        except BaseException:
            failed.set()
            raise
        finally:
            counts.put(None)
        written.result()


def _write_features(
    folder: Path, path: Path, source: _Source, found: Digests
) -> tuple[FloatArray | scipy.sparse.csr_matrix, tuple[str, ...], tuple[str, ...]]:
    """Write the features, and return them, notes on them, and the names of random data."""
    into = folder / "x.npy"
    made_up: tuple[str, ...] = ()
    rounded = False

    def check(pieces: Iterator[AnyArray]) -> Iterator[FloatArray]:
        nonlocal rounded
        for piece in pieces:
            single, rounding = as_float_features(str(path), piece)
            rounded = rounded or rounding
            yield single

    if source.sparse is None and source.pieces is None:
        made_up = (describe_random_features(RANDOM_FEATURES),)
        found.follow("x", ArrayFile.find(into).pieces(), len)
    else:
        into.unlink()
        if source.pieces is None:
            return source.sparse, (), ()
        found.store(folder, "x", check(source.pieces()))
    features = ArrayFile.find(into).map()
    return features, ("features were rounded to float32",) if rounded else (), made_up


def _store(folder: Path, dataset: Dataset, choice: ScalingChoice, found: Digests) -> None:
    """Write the arrays whose digests were not ``found`` yet, features scaled, and the manifest."""
    if dataset.feature_scaling != "none":
        raise DatasetError(f"features of {dataset.name} are scaled; write them as they were.")
    for name, array in list_arrays(dataset).items():
        if name not in found.sha256:
            found.store(folder, name, cut_rows(array))
    dataset = replace(dataset, stored_digest=found.digest)
    features = dataset.features
    scaling = choose_scaling(features) if choice == "auto" else choice
    if scaling != "none":
        pieces: Iterator[AnyArray]
        if isinstance(features, np.ndarray):
            name, pieces = "x", scale_pieces(features, scaling)
        elif scaling == "columns":
            raise refuse_columns(dataset.name)
        else:
            name, pieces = "x_data", cut_rows(scale_sparse_rows(features).data)
        found.store(folder, "scaled", pieces)
        os.replace(folder / "scaled.npy", folder / f"{name}.npy")
        found.sha256[name] = found.sha256.pop("scaled")
        notes = (*dataset.notes, describe_scaling(scaling))
        dataset = replace(dataset, feature_scaling=scaling, notes=notes)
    write_manifest(folder, dataset, found)
