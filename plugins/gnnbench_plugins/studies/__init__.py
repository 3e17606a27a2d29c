"""The papers' tables and figures beside this project's: a plugin for each paper.

A study reads what its system's plugin computes; no system reads a study.
"""
