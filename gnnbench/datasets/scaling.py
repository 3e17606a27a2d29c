"""Features brought to one scale, so that one learning rate serves graphs of any source.

Counts of words, pixels and prices come in units of their own, and Adam's first steps are as large
as the learning rate whatever the units are: features stored a hundred times larger train a
hundred times as fast, or not at all. Scaling comes before anything is trained and belongs to the
data set, so that every strategy reads the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy

from gnnbench.errors import DatasetError
from gnnbench.records import Dataset, FeatureScaling, FloatArray

#: ``auto`` is the scaling that suits the features, see :func:`choose_scaling`.
ScalingChoice = Literal["auto", FeatureScaling]
SCALING_CHOICES: tuple[ScalingChoice, ...] = ("auto", *get_args(FeatureScaling))

#: The Euclidean length of scaled rows, chosen by trial: with 1 a GCN needs more epochs where rows
#: have hundreds of words (amazon_photo), and with 4 its first losses rise.
ROW_LENGTH = 2.0
#: Dense columns whose mean and deviation are this near to 0 and 1 are left as they are.
NEAR_STANDARD = 0.25
#: How many values are worked on at a time, in float64.
_VALUES = 1 << 22

_SAID: dict[FeatureScaling, str] = {
    "rows": f"features scaled: every row has length {ROW_LENGTH:g}",
    "columns": "features scaled: every column has mean 0 and deviation 1",
}


def scale_features(dataset: Dataset, choice: ScalingChoice = "auto") -> Dataset:
    """Return the data set with scaled features; its notes and ``feature_scaling`` say how.

    ``rows`` gives every row the Euclidean length :data:`ROW_LENGTH`; rows of zeros stay so, and
    sparse features stay sparse, with as many values stored. ``columns`` takes the mean from every
    column and divides it by its standard deviation; columns of one value become zeros. ``none``
    leaves features as they are stored, and ``auto`` does what :func:`choose_scaling` says. Sums are
    taken in float64, so that features stored larger by any factor give equal results, up to the
    last digit.

    A data set that was scaled is returned as it is for ``auto`` and for its own scaling. A data set
    on disk was scaled when it was written, or is to have none. Raises :class:`DatasetError` for
    another scaling of it, for ``columns`` of sparse features, which would have to be made dense,
    and for an unknown choice.
    """
    if choice not in SCALING_CHOICES:
        raise DatasetError(
            f"features of {dataset.name} cannot be scaled by {choice!r}; choose among "
            f"{', '.join(SCALING_CHOICES)}."
        )
    if dataset.folder:
        if choice in ("auto", dataset.feature_scaling):
            return dataset
        raise DatasetError(
            f"features of {dataset.name} on disk have the scaling {dataset.feature_scaling!r}, "
            f"not {choice!r}. Write another folder with `gnnbench datasets import --out DIR "
            f"--scale-features {choice}`."
        )
    if dataset.feature_scaling != "none":
        if choice in ("auto", dataset.feature_scaling):
            return dataset
        raise DatasetError(
            f"features of {dataset.name} were scaled by {dataset.feature_scaling} already, so they "
            f"cannot be scaled by {choice!r}; load the data set again."
        )
    scaling = choose_scaling(dataset.features) if choice == "auto" else choice
    if scaling == "none":
        return dataset
    features: FloatArray | scipy.sparse.csr_matrix
    if isinstance(dataset.features, np.ndarray):
        features = np.empty_like(dataset.features)
        begin = 0
        for rows in scale_pieces(dataset.features, scaling):
            features[begin : begin + len(rows)] = rows
            begin += len(rows)
    elif scaling == "rows":
        features = scale_sparse_rows(dataset.features)
    else:
        raise refuse_columns(dataset.name)
    return replace(
        dataset,
        features=features,
        feature_scaling=scaling,
        stored_digest=dataset.digest(),
        notes=(*dataset.notes, describe_scaling(scaling)),
    )


def describe_scaling(scaling: FeatureScaling) -> str:
    """Return the note of a data set with scaled features."""
    return _SAID[scaling]


def refuse_columns(name: str) -> DatasetError:
    """Make the error for sparse features that are to be scaled by columns."""
    return DatasetError(
        f"features of {name} are sparse, and scaling their columns would make them dense; scale "
        f"rows."
    )


def choose_scaling(features: FloatArray | scipy.sparse.csr_matrix) -> FeatureScaling:
    """Choose the scaling that suits features.

    It is ``rows`` if they are stored sparse or at least half of them are zero, as in bags of words.
    Otherwise it is ``columns``, or ``none`` if these nearly have mean 0 and deviation 1 already, as
    random features have.
    """
    if not isinstance(features, np.ndarray):
        return "rows"
    filled = sum(int(np.count_nonzero(features[rows])) for rows in _slices(features))
    if 2 * filled <= features.size:
        return "rows"
    mean, deviation = _column_moments(features)
    standard = (np.abs(mean) <= NEAR_STANDARD) & (np.abs(deviation - 1.0) <= NEAR_STANDARD)
    return "none" if standard.all() else "columns"


def scale_pieces(features: FloatArray, scaling: FeatureScaling) -> Iterator[FloatArray]:
    """Yield the rows of dense features, scaled, some at a time."""
    if scaling == "columns":
        mean, deviation = _column_moments(features)
        factor = _invert(deviation)
        for rows in _slices(features):
            yield ((features[rows] - mean) * factor).astype(features.dtype)
        return
    for rows in _slices(features):
        values = features[rows].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        values *= ROW_LENGTH * _invert(lengths)[:, None]
        yield values.astype(features.dtype)


def scale_sparse_rows(features: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """Scale sparse rows to the length :data:`ROW_LENGTH`; as many values are stored."""
    values = features.data.astype(np.float64)
    counts = np.diff(features.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    squares = np.bincount(rows, weights=values * values, minlength=len(counts))
    values *= ROW_LENGTH * _invert(np.sqrt(squares))[rows]
    arrays = (values.astype(features.dtype), features.indices, features.indptr)
    return scipy.sparse.csr_matrix(arrays, shape=features.shape)


def _column_moments(
    features: FloatArray,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each column's mean and standard deviation, float64; rounding counts as deviation 0."""
    count = len(features)
    mean = np.zeros(features.shape[1])
    for rows in _slices(features):
        mean += features[rows].sum(axis=0, dtype=np.float64)
    mean /= count
    squares = np.zeros_like(mean)
    for rows in _slices(features):
        squares += np.square(features[rows] - mean).sum(axis=0)
    deviation = np.sqrt(squares / count)
    deviation[deviation <= 1e-9 * np.abs(mean)] = 0.0
    return mean, deviation


def _invert(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1 / length, and 0 for a length of 0, so that zeros stay zeros."""
    return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def _slices(features: FloatArray) -> Iterator[slice]:
    """Yield consecutive rows, about :data:`_VALUES` values at a time."""
    step = max(1, _VALUES // features.shape[1])
    for begin in range(0, len(features), step):
        yield slice(begin, begin + step)
