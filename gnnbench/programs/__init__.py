"""Whole training programs as rows of a comparison: timed and checked, never taken apart."""

from gnnbench.records import (
    CommandProgram,
    EpochReport,
    Program,
    ProgramSession,
    Task,
)

__all__ = ["CommandProgram", "EpochReport", "Program", "ProgramSession", "Task"]
