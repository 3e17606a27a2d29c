"""How long an edge list takes to become a folder, beside reading its text and sorting its edges.

``python -m suites.imports`` writes a CSV of random edges, imports it in a process of its own by
turns with ``pyarrow.csv`` and ``numpy.sort``, and prints seconds, peaks of memory and their ratio.
Features that are made up for a graph of edges alone are also timed alone.
"""

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import click
import numpy as np

from gnnbench.datasets import import_folder
from gnnbench.datasets.construct import RANDOM_FEATURES, draw_random_features
from gnnbench.datasets.streaming import Digests

#: What asv follows.
EDGES, VERTICES = 1_000_000, 100_000
EDGES_AT_A_TIME = 1_000_000


def write_edges(file: Path, num_edges: int, num_vertices: int) -> None:
    """Write random edges as a CSV of two columns without a heading."""
    import pyarrow
    from pyarrow import csv

    rng = np.random.default_rng(0)
    schema = pyarrow.schema([("source", pyarrow.int64()), ("target", pyarrow.int64())])
    with csv.CSVWriter(file, schema, write_options=csv.WriteOptions(include_header=False)) as out:
        for begin in range(0, num_edges, EDGES_AT_A_TIME):
            count = min(EDGES_AT_A_TIME, num_edges - begin)
            ends = rng.integers(0, num_vertices, (2, count))
            out.write_table(pyarrow.table(list(ends), schema=schema))


def read_and_sort(file: Path, num_vertices: int) -> float:
    """Return the seconds of reading all edges and of sorting them, one key each."""
    from pyarrow import csv

    began_s = time.perf_counter()
    table = csv.read_csv(file, csv.ReadOptions(column_names=["source", "target"]))
    read_s = time.perf_counter() - began_s
    keys = table.column(0).to_numpy() * num_vertices + table.column(1).to_numpy()
    began_s = time.perf_counter()
    np.sort(keys)
    return read_s + time.perf_counter() - began_s


def import_edges(file: Path, num_vertices: int) -> float:
    """Return the seconds of an import, which leaves nothing behind."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        began_s = time.perf_counter()
        import_folder(file, Path(folder) / "made")
        return time.perf_counter() - began_s


def make_up_features(file: Path, num_vertices: int) -> float:
    """Return the seconds of drawing, hashing and writing features alone."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        began_s = time.perf_counter()
        features = draw_random_features((num_vertices,), RANDOM_FEATURES)
        Digests(directed=False).store(Path(folder), "x", features)
        return time.perf_counter() - began_s


WORK: tuple[Callable[[Path, int], float], ...] = (read_and_sort, import_edges, make_up_features)


def _measure(number: int, file: Path, num_vertices: int) -> tuple[float, float, float]:
    """Return seconds, seconds of processors, and the peak of memory in bytes, of this process."""
    taken_s = WORK[number](file, num_vertices)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return taken_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0


class Imports:
    """An edge list of a million edges."""

    timeout = 600

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "edges.csv"
        write_edges(self.file, EDGES, VERTICES)
        read_and_sort(self.file, VERTICES)

    def teardown(self) -> None:
        self.folder.cleanup()

    def time_import(self) -> None:
        import_edges(self.file, VERTICES)


@click.command()
@click.option("--edges", "num_edges", default=30_000_000, help="Lines of the text.")
@click.option("--vertices", "num_vertices", default=3_000_000)
@click.option("--repeats", default=3, help="Turns of each.")
def main(num_edges: int, num_vertices: int, repeats: int) -> None:
    """Print medians and ratios, and the load of the machine."""
    found: list[list[tuple[float, float, float]]] = [[] for _ in WORK]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "edges.csv"
        write_edges(file, num_edges, num_vertices)
        for _ in range(repeats):
            for number in range(len(WORK)):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    found[number].append(pool.apply(_measure, (number, file, num_vertices)))
    for work, samples in zip(WORK, found, strict=True):
        ratio = median(one[0] / base[0] for one, base in zip(samples, found[0], strict=True))
        taken_s, used_s, peak_bytes = (median(column) for column in zip(*samples, strict=True))
        print(
            f"{work.__name__:17}{taken_s:7.1f} s{used_s:7.1f} s of processors"
            f"{peak_bytes / 1e6:7.0f} MB{ratio:6.2f} times the first"
        )
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())}; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
