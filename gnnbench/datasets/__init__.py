"""Datasets: the ``.npz`` format, synthetic graphs, stand-ins, imports, OGB and PyG.

Everything ends in :func:`build`, so every :class:`~gnnbench.records.Dataset` has a sorted graph
without self loops or duplicates, symmetric unless it says that it is directed, finite features and
a usable split.
"""

from gnnbench.datasets.catalogue import (
    DatasetEntry,
    cache_folder,
    data_folders,
    default_dataset,
    describe,
    edge_convention,
    find_all_files,
    find_file,
    find_shared_data,
    list_datasets,
    list_files,
    load,
)
from gnnbench.datasets.construct import build
from gnnbench.datasets.conversion import import_folder, make_folder
from gnnbench.datasets.external import from_ogb
from gnnbench.datasets.folder import is_folder, load_folder
from gnnbench.datasets.imports import Extras, Imported, choose_name, import_file, import_graph
from gnnbench.datasets.npz import load_npz, save_npz
from gnnbench.datasets.objects import from_arrays, from_dgl, from_networkx, from_pyg
from gnnbench.datasets.scaling import (
    SCALING_CHOICES,
    ScalingChoice,
    choose_scaling,
    scale_features,
)
from gnnbench.datasets.standins import STAND_INS, StandIn

__all__ = [
    "SCALING_CHOICES",
    "STAND_INS",
    "DatasetEntry",
    "Extras",
    "Imported",
    "ScalingChoice",
    "StandIn",
    "build",
    "cache_folder",
    "choose_name",
    "choose_scaling",
    "data_folders",
    "default_dataset",
    "describe",
    "edge_convention",
    "find_all_files",
    "find_file",
    "find_shared_data",
    "from_arrays",
    "from_dgl",
    "from_networkx",
    "from_ogb",
    "from_pyg",
    "import_file",
    "import_folder",
    "import_graph",
    "is_folder",
    "list_datasets",
    "list_files",
    "load",
    "load_folder",
    "load_npz",
    "make_folder",
    "save_npz",
    "scale_features",
]
