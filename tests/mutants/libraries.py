"""The libraries that tests use, imported once for all faults."""

from gnnbench.host.waiting import wait_briefly

wait_briefly()

import hypothesis  # noqa: E402, F401
import pandas  # noqa: E402, F401
import pydantic  # noqa: E402, F401
import pytest  # noqa: E402, F401
import rich.console  # noqa: E402, F401
import scipy.optimize  # noqa: E402
import scipy.sparse  # noqa: E402
import scipy.stats  # noqa: E402, F401
import torch  # noqa: E402, F401
import torch_geometric  # noqa: E402, F401

from gnnbench.datasets.dgl_library import load_dgl  # noqa: E402

load_dgl()
