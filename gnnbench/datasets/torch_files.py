"""What ``torch.save`` stores, read without running code of the file."""

from __future__ import annotations

import contextlib
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from gnnbench.datasets.topology import AnyArray
from gnnbench.errors import DatasetError
from gnnbench.host.files import FileRefusedError, open_input


def load_torch(file: Path, missing: str) -> object:
    """Return what ``torch.save`` has stored: tensors, containers and PyG's ``Data`` alone.

    Raises :class:`DatasetError`, whose sentence says what is ``missing`` in anything else.
    """
    import torch

    try:
        with open_input(file) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_sums(stream)
            with torch.serialization.safe_globals(_find_data_classes(file)):
                return torch.load(stream, map_location="cpu", weights_only=True)
    except FileRefusedError as error:
        raise DatasetError(f"{file}: {error.reason}; give the path of a tensor.") from error
    except Exception as error:  # whatever a damaged file makes torch raise
        raise DatasetError(
            f"{file}: it holds {missing} that can be read without running code of the file; save "
            f"them with torch.save."
        ) from error


def _check_sums(stream: BinaryIO) -> None:
    """Raise ``ValueError`` for a zip with other bytes than it has checksums of, as torch does not.

    Files of older versions are no zips, and have no checksums.
    """
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {damaged} is another")
    stream.seek(0)


def _find_data_classes(file: Path) -> list[Any]:
    """Return the classes of PyG that the file names; PyG is imported only for these."""
    import torch

    with contextlib.suppress(Exception):  # what is wrong with the file is said when it is read
        found = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        wanted = [name for name in found if name.startswith("torch_geometric.data.")]
        if wanted:
            from torch_geometric.data import data, storage

            classes = (
                data.Data, data.DataEdgeAttr, data.DataTensorAttr,
                storage.GlobalStorage, storage.NodeStorage, storage.EdgeStorage,
            )  # fmt: skip
            return list(classes)
    return []


def as_numpy(file: Path, held: object) -> AnyArray:
    """Return a tensor that a file holds as a dense array; raises :class:`DatasetError`."""
    import torch

    if not isinstance(held, torch.Tensor):
        raise DatasetError(f"{file}: it holds a {type(held).__name__}, not a tensor; save one.")
    array: AnyArray = held.to_dense().numpy(force=True)
    return array
