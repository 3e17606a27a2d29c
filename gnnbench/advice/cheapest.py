"""The reverse question: the cheapest platform on which a job fits and ends in time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gnnbench.advice.advise import Answer, advise
from gnnbench.advice.questions import Question
from gnnbench.errors import UsageError
from gnnbench.host.progress import doing
from gnnbench.machines.machine import Platform


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A platform, the power of its devices together, and whether the job ends there ``in_time``.

    ``answer`` is its best, None if nothing fits; ``why_not`` says why the platform is unsuitable.
    ``sure`` says that it ends in time even with the model's error.
    """

    platform: Platform
    power_w: float
    answer: Answer | None
    why_not: str = ""
    sure: bool = False

    @property
    def in_time(self) -> bool:
        """Whether the machine meets the deadline."""
        return not self.why_not


def sum_power(platform: Platform) -> float | None:
    """Return the watts of all devices; None if the platform does not state all of them."""
    powers = [device.hardware.power_w for device in platform.devices]
    return None if None in powers else sum(power for power in powers if power is not None)


def find_cheapest(
    question: Question, platforms: Iterable[Platform], within_s: float
) -> tuple[Offer, ...]:
    """Return platforms by ascending power, up to the first that is fast enough.

    On it all epochs of the workload end within ``within_s`` seconds. Platform files have no prices,
    so the power of the devices stands in. Platforms without stated power are left out, and so is
    this machine.
    """
    by_power = sorted(
        ((watts, p) for p in platforms if p.virtual and (watts := sum_power(p)) is not None),
        key=lambda pair: (pair[0], pair[1].name),
    )
    offers: list[Offer] = []
    with doing("trying platforms", len(by_power)) as trying:
        for watts, platform in by_power:
            offers.append(judge(replace(question, platform=platform), watts, within_s))
            if offers[-1].in_time:
                break
            trying.advance()
    return tuple(offers)


def judge(question: Question, watts: float, within_s: float) -> Offer:
    """Decide whether the job fits a platform and ends there in time."""
    try:
        answers: Sequence[Answer] = advise(question, vary=False).answers
    except UsageError as error:
        return Offer(question.platform, watts, None, str(error))
    answer = answers[0]
    best = answer.best
    if best is None:
        return Offer(question.platform, watts, answer, "no combination fits its memories.")
    epochs = question.workload.epochs
    took_s = best.epoch_s * epochs
    if took_s > within_s:
        why = f"{epochs:,} epochs of {best.row.label} take {took_s:.3g} s."
        return Offer(question.platform, watts, answer, why)
    sure = best.interval_s is not None and best.interval_s[1] * epochs <= within_s
    return Offer(question.platform, watts, answer, sure=sure)
