"""All tests of this folder run on one thread."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def on_one_thread(one_thread):
    """No test needs a second thread for graphs as small as these."""
