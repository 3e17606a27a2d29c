"""Files that say which vertices there are: GraphML, GEXF and GML, through NetworkX, and METIS."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from gnnbench.datasets.content import Ids, choose_weights
from gnnbench.datasets.memory import check_memory, find_available_bytes
from gnnbench.datasets.objects import read_networkx
from gnnbench.datasets.raw import Numbering, RawGraph, note_numbering
from gnnbench.datasets.texts import open_text, strip_compression, text_lines
from gnnbench.errors import DatasetError, reason_of

#: What NetworkX keeps of a vertex or an edge, by byte of the file.
_BYTES_PER_BYTE = 40
#: By ending, the elements that a format of XML has in its own namespace.
_ELEMENTS = {
    ".graphml": "graphml key default desc data graph node edge port hyperedge endpoint locator",
    ".gexf": (
        "gexf meta creator description keywords graph attributes attribute default options nodes "
        "node edges edge attvalues attvalue parents parent spells spell slices slice"
    ),
}
#: Elements that hold no text, the directions of GraphML, and the attributes an element needs.
_CONTAINERS = ("graphml", "gexf", "graph", "nodes", "edges", "node", "edge")
_DIRECTIONS = ("directed", "undirected")
_NEEDED = {"node": ("id",), "edge": ("source", "target")}


def read_markup(file: Path, *, weighted: bool) -> RawGraph:
    """Read GraphML, GEXF or GML. Vertices are numbered in the order of their ids.

    ``weight`` of an edge is its weight; all other attributes are left out, which a note says.
    """
    import networkx

    kind = strip_compression(file).suffix.lower()
    try:
        with open_text(file) as stream:
            held = stream.read(find_available_bytes() // _BYTES_PER_BYTE + 1)
        check_memory(str(file), "its graph", _BYTES_PER_BYTE * len(held))
        if kind == ".gml":
            graph = networkx.read_gml(io.BytesIO(held), label="id")
        else:
            declared = _count_vertices(held, kind)
            read = networkx.read_gexf if kind == ".gexf" else networkx.read_graphml
            graph = read(io.BytesIO(held))
            if graph.number_of_nodes() != declared:
                raise ValueError("an edge has another end than its vertices")
    except DatasetError:
        raise
    except Exception as error:  # whatever a damaged file makes a foreign parser raise
        raise DatasetError(
            f"{file}: this is not a readable {kind[1:]} file ({reason_of(error)}); mend it, or "
            f"export it again."
        ) from error
    if graph.number_of_edges() == 0:
        raise DatasetError(f"{file}: there are no edges in it; a GNN needs at least one.")
    ids = _as_ids(list(graph.nodes))
    order = np.argsort(ids, kind="stable")
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[order] = np.arange(len(ids))
    raw = read_networkx(graph, str(file), {"x": None, "y": None, "split": None}, weighted=weighted)
    lost = sorted({name for _, held in graph.nodes(data=True) for name in held})
    notes = list(raw.notes)
    if lost:
        notes.append(f"attributes of vertices were ignored: {', '.join(lost)}")
    ids = ids[order]
    said, renumbered = note_numbering(ids)
    return RawGraph(
        ranks[raw.edges],
        len(ids),
        f"imported from {file.name}",
        (*notes, *said),
        weights=raw.weights,
        numbering=Numbering(ids, renumbered=renumbered),
    )


def _count_vertices(held: bytes, kind: str) -> int:
    """Return how many vertices a text of XML declares.

    NetworkX leaves out whatever it does not know, and makes vertices of unknown ends of edges.
    Raises ``ValueError`` for an element that is not of the format, or that lacks an attribute, and
    for text where the format has none.
    """
    root = ElementTree.fromstring(held)
    space = root.tag.rpartition("}")[0]
    own = [
        (each, each.tag.rpartition("}")[2]) for each in root.iter() if each.tag.startswith(space)
    ]
    for element, tag in own:
        if tag not in _ELEMENTS[kind].split():
            raise ValueError(f"there is no element {tag[:40]!r} in the format")
        if any(name not in element.attrib for name in _NEEDED.get(tag, ())):
            raise ValueError(f"an element {tag!r} lacks {' or '.join(_NEEDED[tag])}")
        texts = (element.text, *(child.tail for child in element))
        if tag in _CONTAINERS and any(text and text.strip() for text in texts):
            raise ValueError(f"there is text in an element {tag!r}")
        if (tag, kind) == ("graph", ".graphml") and element.get("edgedefault") not in _DIRECTIONS:
            raise ValueError(f"its edgedefault is {element.get('edgedefault')!r}")
    return sum(tag == "node" for _, tag in own)


def _as_ids(names: list[Any]) -> Ids:
    """Return the vertices' ids, as integers where all of them are written as such."""
    texts = [str(name) for name in names]
    if all(text == str(int(text)) for text in texts if text.lstrip("-").isdecimal()) and all(
        text.lstrip("-").isdecimal() and len(text) < 19 for text in texts
    ):
        return np.array([int(text) for text in texts], dtype=np.int64)
    return np.array(texts, dtype=np.str_)


def read_metis(file: Path, *, weighted: bool) -> RawGraph:
    """Read a graph as METIS 5 has it (manual, section 4.1.1); its vertices count from 1.

    The first line has the numbers of vertices and edges. A format ``abc`` and the number of weights
    of each vertex may follow. With ``a`` each line begins with a size. With ``b`` it continues with
    the vertex's weights. With ``c`` a weight follows each neighbour.
    """
    lines = _metis_lines(file)
    number, header = next(lines, (0, []))
    if not 2 <= len(header) <= 4 or header[0] < 1:
        raise _refuse(file, number, "does not say how many vertices and edges there are")
    code = f"{header[2] if len(header) > 2 else 0:03d}"
    if set(code) - {"0", "1"} or len(code) != 3:
        raise _refuse(file, number, f"has the format {code}, which METIS does not know")
    counts = header[3] if len(header) == 4 else int(code[1])
    skipped, step = int(code[0]) + (counts if code[1] == "1" else 0), 1 + int(code[2])
    count, promised = header[0], header[1]
    check_memory(str(file), "its graph", 64 * count + 120 * promised)
    sources, targets, weights = [], [], []
    vertex = 0
    for number, held in lines:
        vertex += 1
        if vertex > count:
            if held:
                raise _refuse(file, number, f"is of a vertex beyond the {count:,} there are")
            continue
        neighbours = held[skipped::step]
        if len(held) < skipped or len(held[skipped:]) % step:
            raise _refuse(file, number, "lacks a weight")
        if neighbours and not 1 <= min(neighbours) <= max(neighbours) <= count:
            raise _refuse(file, number, f"has a neighbour outside 1 to {count:,}")
        sources += [vertex - 1] * len(neighbours)
        targets += [each - 1 for each in neighbours]
        weights += held[skipped + 1 :: step] if step == 2 else []
        if len(sources) > 2 * promised:
            break
    if vertex < count:
        raise DatasetError(
            f"{file}: it has lines for {vertex:,} vertices, and says that there are {count:,}; it "
            f"may have been cut off."
        )
    edges = np.array((sources, targets), dtype=np.int64).reshape(2, -1)
    _check_metis(file, edges, count, promised)
    carried = np.array(weights) if step == 2 else None
    chosen, lost = choose_weights(str(file), carried, weighted=weighted)
    origin = f"imported from {file.name}"
    return RawGraph(edges, count, origin, lost, weights=chosen, numbering=Numbering(first=1))


def _metis_lines(file: Path) -> Iterator[tuple[int, list[int]]]:
    """Yield each line's number and its whole numbers; an empty line is a vertex without edges."""
    for number, line in text_lines(file):
        if line.startswith(b"%"):
            continue
        fields = line.split()
        if not all(field.isdigit() and len(field) < 19 for field in fields):
            raise _refuse(file, number, "has something else than whole numbers")
        yield number, [int(field) for field in fields]


def _check_metis(file: Path, edges: Any, count: int, promised: int) -> None:
    """Refuse other edges than were promised, or edges that are not listed at both ends."""
    found = edges.shape[1]
    if found == 0:
        raise DatasetError(f"{file}: there are no edges in it; a GNN needs at least one.")
    there, back = np.sort(edges[0] * count + edges[1]), np.sort(edges[1] * count + edges[0])
    if found != 2 * promised or (there != back).any() or (there[1:] == there[:-1]).any():
        raise DatasetError(
            f"{file}: it lists {found:,} neighbours and states {promised:,} edges, but METIS "
            f"lists each edge once at both of its ends. The file is damaged, or no METIS graph."
        )


def _refuse(file: Path, number: int, what: str) -> DatasetError:
    return DatasetError(
        f"{file}, line {number}: it {what}; give a graph as METIS writes it, or an edge list under "
        f"another ending."
    )
