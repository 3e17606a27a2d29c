"""gnnbench: which GNN training system strategy wins on this graph, model and machine, and why."""

__version__ = "0.1.0"
