"""Tasks of Ray: one for each run, or one for each node of a run in a placement group."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gnnbench.errors import MissingDependencyError
from gnnbench.report.results.kept import KeptStatus
from gnnbench.sweep.carrying import ALONE, Ended, carry_out, forget, lose, start_in_root
from gnnbench.sweep.launching import Node, RunLostError
from gnnbench.sweep.running import Task
from gnnbench.sweep.turns import is_measured

#: The variable that makes Ray on one machine listen on the loopback, as it does on macOS.
_RAY_BEYOND_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
#: How often a run is run again whose worker or node is lost.
RETRIES = 2


def import_ray() -> Any:
    """Return the module; the types of its functions are narrower than the functions."""
    import ray

    return ray


class RayExecutor:
    """Tasks of Ray: on the cluster in ``RAY_ADDRESS``, else by workers on this machine."""

    def __init__(self, jobs: int) -> None:
        os.environ.setdefault(_RAY_BEYOND_LOOPBACK, "0")  # it is read once, by the import
        try:
            self._ray = import_ray()
        except ImportError as error:
            raise MissingDependencyError(
                f"--executor ray needs the package ray ({error}); install it with "
                f"`pip install gnnbench[ray]`."
            ) from error
        self._jobs = jobs
        self.runs_here = "RAY_ADDRESS" not in os.environ

    def run(self, tasks: Sequence[Task]) -> Iterator[Ended]:
        """Carry out all tasks, and yield each when it has ended."""
        ray = self._ray
        begun = not ray.is_initialized()
        cores = max((task.configuration.node_cores for task in tasks), default=1)
        # Ray lets everybody write to its folder, so it lies in one of this user's own.
        with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as private:
            with start_in_root() as folder:
                if begun:
                    own = {"num_cpus": self._jobs * cores, "include_dashboard": False}
                    local = {**own, "_temp_dir": f"{private}/r"} if self.runs_here else {}
                    ray.init(log_to_driver=False, logging_level="error", **local)
            try:
                yield from self._carry_out(tasks, folder)
            finally:
                if begun:
                    ray.shutdown()

    def _carry_out(self, tasks: Sequence[Task], folder: str) -> Iterator[Ended]:
        ray = self._ray
        waiting, running = deque(tasks), dict[Any, Task]()
        while waiting or running:
            while waiting and len(running) < self._jobs:
                if _may_deadlock(waiting[0], running.values()):
                    break
                task = waiting.popleft()
                forget(task)
                running[_start(task, folder)] = task
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            task = running.pop(done)
            try:
                status, reason = ray.get(done)
            except ray.exceptions.RayError as error:
                words = " ".join(str(getattr(error, "cause", None) or error).split())[:200]
                yield lose(task, f"its Ray worker was lost {1 + RETRIES} times: {words}")
            else:
                yield task, status, reason


def _may_deadlock(task: Task, running: Collection[Task]) -> bool:
    """Whether two runs could each hold a node's lock and wait for a lock of the other."""
    several = [each for each in (task, *running) if each.configuration.spread.nodes > 1]
    return task in several[:1] and len(several) > 1 and is_measured(task)


def _start(task: Task, folder: str) -> Any:
    """Start a task on Ray, and return the reference of its end."""
    ray = import_ray()
    if task.configuration.spread.nodes == 1:
        share = describe_share(task)
        return ray.remote(max_retries=RETRIES, **share)(carry_out_in_worker).remote(task, folder)
    again = [RunLostError, ray.exceptions.RayError]
    spread = ray.remote(num_cpus=0, max_retries=RETRIES, retry_exceptions=again)(spread_out)
    return spread.remote(task, folder)


def carry_out_in_worker(task: Task, folder: str, node: Node = ALONE) -> tuple[KeptStatus, str]:
    """Carry a task out in this worker of Ray, which SIGTERM ends at once.

    Ray sends SIGTERM to the workers of a sweep that was killed. Ray's own handler raises
    ``SystemExit``, which would be kept as a failure of the run.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return carry_out(task, folder, node)


def describe_share(task: Task) -> dict[str, int]:
    """Return what a run needs of each of its nodes, as options of Ray."""
    spread = task.configuration.spread
    gpus = {"num_gpus": spread.gpus // spread.nodes} if spread.gpus else {}
    return {"num_cpus": task.configuration.node_cores, **gpus}


def spread_out(task: Task, folder: str) -> tuple[KeptStatus, str]:
    """Carry a task out on several nodes of Ray, which a placement group holds meanwhile."""
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray = import_ray()
    share, nodes = describe_share(task), range(task.configuration.spread.nodes)
    bundle = {"CPU": share["num_cpus"], "GPU": share.get("num_gpus", 0)}
    group = placement_group([bundle for _ in nodes], strategy="STRICT_SPREAD")

    def remote(function: Any, node: int, **options: int) -> Any:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        return ray.remote(max_retries=0, scheduling_strategy=place, **options)(function).remote

    try:
        ray.get(group.ready())
        address, port = ray.get(remote(find_meeting, 0, num_cpus=0)())
        ends = [
            remote(carry_out_in_worker, node, **share)(task, folder, Node(node, address, port))
            for node in nodes
        ]
        end: tuple[KeptStatus, str] = ray.get(ends)[0]
        return end
    finally:
        remove_placement_group(group)


def find_meeting() -> tuple[str, int]:
    """Return this node's address, and a port of it that is free, for the ranks to meet at."""
    with contextlib.closing(socket.create_server(("", 0))) as free:
        return import_ray().util.get_node_ip_address(), free.getsockname()[1]
