"""The program of a Slurm job on each of its nodes: it carries out the task in its argument."""

from __future__ import annotations

import json
import os
import sys

from gnnbench.errors import GnnbenchError
from gnnbench.sweep.carrying import carry_out, log_of
from gnnbench.sweep.launching import Node
from gnnbench.sweep.running import Task


def main() -> int:
    """Carry out the task; return the exit status, 0 also for a run that is kept as failed."""
    told = json.loads(sys.argv[1])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    node = Node(int(os.environ["SLURM_NODEID"]), address, port)
    task = Task.from_json(told)
    try:
        carry_out(task, told["folder"], node)
    except GnnbenchError as error:
        print(f"gnnbench: error: {error}", file=sys.stderr)
        return error.exit_status
    if node.number == 0:
        log_of(task).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
