"""Times that calibration fits to measured epochs."""

import pytest

from gnnbench.price.calibration import MeasuredEpoch, fit_path
from gnnbench.price.folds import Digest


def measure(steps, sample_s, planned_s, harness_s):
    planned = Digest(1.0, {"sample": planned_s}, (None,) * steps)
    return MeasuredEpoch("run", "path", "gcn", 1.0, {"sample": sample_s}, harness_s, planned)


def test_a_path_has_the_quotients_of_sums_over_epochs_that_know_both():
    epochs = [measure(10, 3.0, 1.0, 0.2), measure(30, 1.0, 3.0, 0.6), measure(60, 2.0, 0.0, None)]
    times = fit_path(epochs)
    assert times.sample == pytest.approx(6.0 / 4.0)
    assert times.step_s == pytest.approx(0.8 / 40)
    assert fit_path(epochs[2:]).step_s == fit_path([]).step_s
