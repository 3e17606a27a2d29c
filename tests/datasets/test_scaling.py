"""Features brought to one scale, held against dense NumPy, whatever way they are stored."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from gnnbench import datasets
from gnnbench.datasets import SCALING_CHOICES, build, choose_scaling, load, scale_features
from gnnbench.errors import DatasetError
from gnnbench.jobs import limits

VERTICES, WIDTH = 60, 9


def make_values(kind):
    """Float32 ``(60, 9)``; rows 0 and 7 are zero, and so is the last column."""
    rng = np.random.default_rng(4)
    values = rng.poisson(0.4, (VERTICES, WIDTH)).astype(np.float32)
    if kind == "negative":
        values *= rng.choice(np.array([-3.0, 0.5], dtype=np.float32), values.shape)
    if kind == "dense":
        values = rng.normal(5.0, np.arange(1.0, WIDTH + 1), values.shape).astype(np.float32)
    values[[0, 7]] = 0.0
    values[:, -1] = 0.0
    return values


def make_dataset(features):
    ring = np.arange(VERTICES)
    return build("ring", np.stack((ring, np.roll(ring, 1))), features=features)


def as_dense(dataset):
    features = dataset.features
    return features if isinstance(features, np.ndarray) else features.toarray()


def divide_rows(values):
    """The plain script's way."""
    exact = values.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return 2.0 * exact / np.where(lengths == 0.0, 1.0, lengths)


def standardise_columns(values):
    exact = values.astype(np.float64)
    deviation = exact.std(axis=0)
    return (exact - exact.mean(axis=0)) / np.where(deviation == 0.0, 1.0, deviation)


@pytest.mark.parametrize(("slices", "dtype"), [(1, np.float64), (2, np.float32)])
@pytest.mark.parametrize("stored", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kind", ["counts", "negative", "dense"])
def test_rows_are_numpys(monkeypatch, kind, stored, dtype, slices):
    monkeypatch.setattr(datasets.scaling, "_VALUES", VERTICES * WIDTH // slices)
    values = make_values(kind)
    plain = make_dataset(stored(values))
    plain = replace(plain, features=plain.features.astype(dtype))
    before = as_dense(plain).copy()
    scaled = scale_features(plain, "rows")
    assert type(scaled.features) is type(plain.features)
    assert scaled.features.dtype == dtype
    np.testing.assert_allclose(as_dense(scaled), divide_rows(values), rtol=3 * np.finfo(dtype).eps)
    assert not as_dense(scaled)[[0, 7]].any()
    np.testing.assert_array_equal(as_dense(plain), before)


@pytest.mark.parametrize(("slices", "dtype"), [(1, np.float64), (2, np.float32)])
@pytest.mark.parametrize("kind", ["counts", "negative", "dense"])
def test_columns_are_numpys(monkeypatch, kind, dtype, slices):
    monkeypatch.setattr(datasets.scaling, "_VALUES", VERTICES * WIDTH // slices)
    values = make_values(kind)
    plain = replace(make_dataset(values), features=values.astype(dtype))
    scaled = scale_features(plain, "columns")
    assert scaled.features.dtype == dtype
    np.testing.assert_allclose(
        scaled.features, standardise_columns(values), rtol=4 * np.finfo(dtype).eps, atol=1e-15
    )
    assert not scaled.features[:, -1].any()


def test_a_column_of_one_value_becomes_zeros():
    """Not its rounding error, divided by itself."""
    values = np.full((VERTICES, 2), 0.1, dtype=np.float32)
    values[:, 1] = np.arange(VERTICES)
    assert not scale_features(make_dataset(values), "columns").features[:, 0].any()


def test_sparse_features_store_the_same_entries():
    """Also those that are stored zeros: what is counted and moved stays."""
    stored = sp.csr_matrix(make_values("counts"))
    stored.data[3] = 0.0
    plain = make_dataset(stored)
    scaled = scale_features(plain)
    assert scaled.feature_scaling == "rows"
    np.testing.assert_array_equal(scaled.features.indptr, plain.features.indptr)
    np.testing.assert_array_equal(scaled.features.indices, plain.features.indices)
    ids = np.arange(20)
    assert scaled.count_stored(ids, 5) == plain.count_stored(ids, 5)


def test_columns_of_sparse_features_are_refused():
    with pytest.raises(DatasetError, match=r"of ring are sparse, .* would make them dense"):
        scale_features(make_dataset(sp.csr_matrix(make_values("counts"))), "columns")


def test_what_auto_chooses():
    counts = make_values("counts")
    assert np.count_nonzero(counts) < counts.size / 2
    assert choose_scaling(counts) == "rows"
    half = np.array([[1, 0, 5], [0, 2, 0]], dtype=np.float32)
    assert choose_scaling(half) == "rows"
    assert choose_scaling(sp.csr_matrix(make_values("dense"))) == "rows"
    assert choose_scaling(make_values("dense")) == "columns"
    drawn = load("rmat:vertices=20000,edges=40000,features=6,classes=3")
    assert choose_scaling(drawn.features) == "none"
    assert choose_scaling(1.3 * drawn.features) == "columns"
    assert choose_scaling(0.3 + drawn.features) == "columns"


def test_features_that_need_nothing_are_left_as_they_are():
    for spec in ("sbm", "rmat:vertices=20000,edges=40000,features=6,classes=3"):
        plain = load(spec)
        assert scale_features(plain) is plain


@pytest.mark.parametrize("factor", [100.0, 1e4, 1e-20])
@pytest.mark.parametrize("kind", ["counts", "dense"])
def test_a_factor_changes_nothing(kind, factor):
    values = make_values(kind)
    larger = scale_features(make_dataset(values * np.float32(factor)))
    plain = scale_features(make_dataset(values))
    assert larger.feature_scaling == plain.feature_scaling != "none"
    np.testing.assert_allclose(larger.features, plain.features, rtol=1e-5, atol=1e-7)


def test_it_is_said_and_the_digest_stays_that_of_the_data():
    plain = make_dataset(make_values("counts"))
    scaled = scale_features(plain)
    assert scaled.notes == (*plain.notes, "features scaled: every row has length 2")
    assert scaled.digest() == plain.digest()
    assert replace(scaled, stored_digest="").digest() != plain.digest()
    assert scale_features(plain, "none") is plain


def test_scaling_twice_is_done_once_or_refused():
    scaled = scale_features(make_dataset(make_values("counts")))
    assert scale_features(scaled) is scaled
    assert scale_features(scaled, "rows") is scaled
    for other in ("columns", "none"):
        with pytest.raises(DatasetError, match=rf"scaled by rows already, .* by '{other}'"):
            scale_features(scaled, other)


def test_a_choice_that_there_is_not_is_refused():
    with pytest.raises(DatasetError, match="by 'l2'; choose among auto, rows, columns, none"):
        scale_features(make_dataset(make_values("counts")), "l2")


def test_the_command_line_has_the_same_choices():
    assert limits.SCALINGS == SCALING_CHOICES
