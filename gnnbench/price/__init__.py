"""The time of spans on a platform.

Clocks give spans durations, the scheduler makes a timeline of them, and folds sum it up. A dry run
reads a program without training.
"""
