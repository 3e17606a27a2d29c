"""Datasets: the ``.npz`` format, synthetic graphs, stand-ins, imports, OGB and PyG.

Everything ends in :func:`build`, so every :class:`~gnnbench.records.Dataset` has a sorted graph
without self loops or duplicates, symmetric unless it says that it is directed, finite features and
a usable split.
"""

from gnnbench.datasets.catalogue import DatasetEntry as DatasetEntry
from gnnbench.datasets.catalogue import cache_folder as cache_folder
from gnnbench.datasets.catalogue import data_folders as data_folders
from gnnbench.datasets.catalogue import default_dataset as default_dataset
from gnnbench.datasets.catalogue import describe as describe
from gnnbench.datasets.catalogue import edge_convention as edge_convention
from gnnbench.datasets.catalogue import find_all_files as find_all_files
from gnnbench.datasets.catalogue import find_file as find_file
from gnnbench.datasets.catalogue import find_shared_data as find_shared_data
from gnnbench.datasets.catalogue import list_datasets as list_datasets
from gnnbench.datasets.catalogue import list_files as list_files
from gnnbench.datasets.catalogue import load as load
from gnnbench.datasets.construct import build as build
from gnnbench.datasets.conversion import import_folder as import_folder
from gnnbench.datasets.conversion import make_folder as make_folder
from gnnbench.datasets.external import from_ogb as from_ogb
from gnnbench.datasets.folder import is_folder as is_folder
from gnnbench.datasets.folder import load_folder as load_folder
from gnnbench.datasets.imports import Extras as Extras
from gnnbench.datasets.imports import Imported as Imported
from gnnbench.datasets.imports import choose_name as choose_name
from gnnbench.datasets.imports import import_file as import_file
from gnnbench.datasets.imports import import_graph as import_graph
from gnnbench.datasets.npz import load_npz as load_npz
from gnnbench.datasets.npz import save_npz as save_npz
from gnnbench.datasets.objects import from_arrays as from_arrays
from gnnbench.datasets.objects import from_dgl as from_dgl
from gnnbench.datasets.objects import from_networkx as from_networkx
from gnnbench.datasets.objects import from_pyg as from_pyg
from gnnbench.datasets.scaling import SCALING_CHOICES as SCALING_CHOICES
from gnnbench.datasets.scaling import ScalingChoice as ScalingChoice
from gnnbench.datasets.scaling import choose_scaling as choose_scaling
from gnnbench.datasets.scaling import scale_features as scale_features
from gnnbench.datasets.standins import STAND_INS as STAND_INS
from gnnbench.datasets.standins import StandIn as StandIn
