"""A plugin that tells asv how to build a commit and when an epoch has become slower.

``asv run`` and ``asv continuous`` build each commit in a separate checkout, with asv's own
interpreter and packages. This is quick, because only the compiled kernels are built. Results are
kept in ``results/asv``.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from asv import _stats, util
from asv.commands.continuous import Continuous
from asv.environment import Environment

from gnnbench.statistics import compare_samples

#: Exit statuses for a failed benchmark: asv's, and this project's.
ASV_FAILED, FAILED = 2, 3


class CheckoutEnvironment(Environment):  # type: ignore[misc]
    """A checkout of a commit with its kernels built in place, run by this interpreter."""

    tool_name = "checkout"

    def __init__(
        self,
        conf: object,
        python: str,
        requirements: dict[str, str],
        tagged_env_vars: Mapping[tuple[str, str], str],
    ) -> None:
        self._requirements = requirements  # which the base class reads before it sets them
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python: str) -> bool:
        return python in ("same", f"{sys.version_info[0]}.{sys.version_info[1]}", sys.executable)

    def check_presence(self) -> bool:
        return os.path.isdir(self._path)

    def _setup(self) -> None:
        os.makedirs(self._path, exist_ok=True)

    def find_executable(self, executable: str) -> str:
        """Return the Python that runs asv, or another executable on the path."""
        if executable == "python":
            return sys.executable
        found: str = super().find_executable(executable)
        return found

    def run(self, args: Sequence[str], **options: Any) -> Any:
        """Run Python with the checkout first on its path.

        asv removes PYTHONPATH from benchmarks, but passes ASV_PYTHONPATH on.
        """
        environment = {**options.pop("env", os.environ), **self._global_env_vars}
        checkout = Path(self._build_root)
        given = environment.get("ASV_PYTHONPATH", "")
        paths = (str(checkout), str(checkout / "plugins"), *filter(None, [given]))
        environment["ASV_PYTHONPATH"] = environment["PYTHONPATH"] = os.pathsep.join(paths)
        return util.check_output([sys.executable, *args], env=environment, **options)


def is_different(
    samples_a: Sequence[float] | None,
    samples_b: Sequence[float] | None,
    stats_a: Mapping[str, float],
    stats_b: Mapping[str, float],
    p_threshold: float = 0.0,
) -> bool:
    """Return whether two benchmarks' times differ, by the statistics of ``gnnbench compare``.

    They need raw samples (``--record-samples``); without them asv's own intervals must not overlap.
    """
    if samples_a and samples_b:
        return compare_samples(samples_a, samples_b).shown
    return stats_a["ci_99_a"] > stats_b["ci_99_b"] or stats_b["ci_99_a"] > stats_a["ci_99_b"]


def setup() -> None:
    """Set up asv; it calls this after importing the module that ``asv.conf.json`` names.

    ``asv continuous`` then compares times by this project's statistics and always keeps the samples
    that these need. It ends with 1 for a regression and 3 for a failed benchmark.
    """
    _stats.is_different = is_different
    run = Continuous.run

    @wraps(run)
    def run_with_samples(*args: Any, **options: Any) -> int:
        options["record_samples"] = True
        status = int(run(*args, **options))
        return FAILED if status == ASV_FAILED else status

    Continuous.run = staticmethod(run_with_samples)
