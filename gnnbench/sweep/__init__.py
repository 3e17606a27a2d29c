"""Sweeps: every combination of data sets, models, strategies, platforms and seeds, each run once.

``grid`` reads the file and makes its configurations, ``running`` carries one out and keeps its
result (``report.results.kept``), and ``executors`` choose the process in which that happens.
"""

from gnnbench.sweep.executors import EXECUTORS, Executor, open_executor
from gnnbench.sweep.grid import Configuration, Grid, read_grid
from gnnbench.sweep.running import Task, find_tasks, run_task

__all__ = [
    "EXECUTORS",
    "Configuration",
    "Executor",
    "Grid",
    "Task",
    "find_tasks",
    "open_executor",
    "read_grid",
    "run_task",
]
