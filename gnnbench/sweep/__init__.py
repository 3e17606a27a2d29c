"""Sweeps: every combination of data sets, models, strategies, platforms and seeds, each run once.

``grid`` reads the file and makes its configurations, ``running`` carries one out and keeps its
result (``report.results.kept``), and ``executors`` choose the process in which that happens.
"""

from gnnbench.sweep.executors import EXECUTORS as EXECUTORS
from gnnbench.sweep.executors import Executor as Executor
from gnnbench.sweep.executors import open_executor as open_executor
from gnnbench.sweep.grid import Configuration as Configuration
from gnnbench.sweep.grid import Grid as Grid
from gnnbench.sweep.grid import read_grid as read_grid
from gnnbench.sweep.running import Task as Task
from gnnbench.sweep.running import find_tasks as find_tasks
from gnnbench.sweep.running import run_task as run_task
