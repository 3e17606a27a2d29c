"""Advice and a matrix as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import TypeAlias

from gnnbench.advice.advise import Advice, Answer, Choice
from gnnbench.advice.cheapest import Offer
from gnnbench.advice.matrix import Cell, Matrix
from gnnbench.advice.pricing import LINK_METRICS, read_metric
from gnnbench.advice.questions import Question
from gnnbench.comparison.request import PlannedRow
from gnnbench.records import RunResult

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"


def describe_question(question: Question) -> dict[str, Json]:
    """Describe the question."""
    dataset, workload = question.dataset, question.workload
    return {
        "dataset": {
            "name": dataset.name,
            "num_vertices": dataset.graph.num_vertices,
            "num_edges": dataset.graph.num_edges,
        },
        "workload": {
            each.name: getattr(workload, each.name)
            for each in fields(workload)
            if each.default is MISSING  # all that a plan depends on
        },
        "platform": {
            "name": question.platform.name,
            "device_memory_bytes": min(
                (device.hardware.memory_bytes for device in question.platform.accelerators),
                default=None,
            ),
        },
    }


def describe_advice(advice: Advice) -> dict[str, Json]:
    """Describe the answers, and the choices of all answers in one list.

    Choices are in the order of the answers, the best of each first.
    """
    return {
        **describe_question(advice.question),
        "target": advice.target,
        "planned": advice.planned,
        "choices": [describe_choice(c) for answer in advice.answers for c in answer.choices],
        "answers": [describe_answer(answer) for answer in advice.answers],
    }


def describe_answer(answer: Answer) -> dict[str, Json]:
    """Describe the answer for the rows of a mode."""
    best, base = answer.best, answer.as_it_comes
    return {
        "mode": answer.mode,
        "sampling": answer.law,
        "best": None if best is None else describe_row(best.row),
        "best_strategy": None if base is None else describe_choice(base),
        "beats_every_strategy": answer.gain is not None,
        "speedup": answer.gain,
        "fitting": answer.fitting,
        "planned": answer.planned,
        "not_ranked": list_counts(answer.unranked),
        "refused": list_counts(answer.refused),
        "changes": answer.changes,
    }


def describe_choice(choice: Choice) -> dict[str, Json]:
    """Describe a choice for the result file."""
    run = choice.run
    return {
        **describe_row(choice.row),
        "epoch_time": finite(choice.epoch_s),
        "interval": choice.interval_s,
        "peak_device_bytes": finite(read_metric(run, "peak_device_bytes")),
        "link_bytes": finite(read_metric(run, *LINK_METRICS)),
        "fits": choice.fits,
        "reason": choice.reason,
        "provenance": "modelled",
        "trained": None if choice.trained is None else describe_trained(choice.trained),
    }


def describe_trained(run: RunResult) -> dict[str, Json]:
    """Describe the result of training a choice."""
    epoch = run.metrics.get("epoch_time")
    return {
        "status": run.status,
        "reason": run.reason,
        "epoch_time": None if epoch is None else epoch.value,
        "provenance": None if epoch is None else epoch.provenance,
        "equal_to_reference": None if run.equivalence is None else run.equivalence.holds,
        "accuracy": {name: value for name, value in run.accuracy.items() if math.isfinite(value)},
    }


def describe_row(row: PlannedRow) -> dict[str, Json]:
    """Describe a combination by name, parts and settings."""
    return {
        "label": row.label,
        "mode": row.mode,
        "parts": asdict(row.parts),
        "options": {f"{kind}.{name}": text for kind, name, text in row.options},
    }


def describe_offers(offers: Sequence[Offer], within_s: float) -> dict[str, Json]:
    """Describe platforms by power, up to the first that is suitable."""
    return {
        "within": within_s,
        "ordered_by": "power",
        "offers": [
            {
                "platform": offer.platform.name,
                "power": offer.power_w,
                "in_time": offer.in_time,
                "sure": offer.sure,
                "reason": offer.why_not,
                "choice": describe_choice(offer.answer.best)
                if offer.answer is not None and offer.answer.best is not None
                else None,
            }
            for offer in offers
        ],
    }


def describe_matrix(matrix: Matrix) -> dict[str, Json]:
    """Describe every combination of one mode, and count the refused ones by sentence."""
    return {
        **describe_question(matrix.question),
        "combinations": matrix.combinations,
        "refused": list_counts(matrix.refusals),
        "cells": [describe_cell(cell) for cell in matrix.cells],
    }


def describe_cell(cell: Cell) -> dict[str, Json]:
    """Describe a combination with its cost, or with the reason why it cannot work."""
    run = cell.run
    planned: dict[str, Json] = {}
    if run.status == "done":
        planned = {
            "epoch_time": read_metric(run, "epoch_time"),
            "peak_device_bytes": read_metric(run, "peak_device_bytes"),
            "link_bytes": read_metric(run, *LINK_METRICS),
            "sampling": "" if run.work is None else run.work.sampling,
            "other_maths": run.other_maths,
            "on_front": cell.on_front,
        }
    return {**describe_row(cell.row), "status": run.status, "reason": run.reason, **planned}


def list_counts(counted: Counter[str]) -> list[Json]:
    """Return each reason with its number of combinations, the most frequent first."""
    return [{"reason": why, "count": count} for why, count in counted.most_common()]


def finite(value: float) -> float | None:
    """Return a finite number, or None for one that JSON lacks."""
    return value if math.isfinite(value) else None
