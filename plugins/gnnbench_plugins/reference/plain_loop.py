"""What plain training loops of libraries share: the task, an optimiser's step, and the messages.

A library's ``loop.py`` is a script, and this is a module beside it: both are programs of gnnbench
and import nothing of it. ``python loop.py TASK_FOLDER [--workers N] [--ranks N] [--stages 1]``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: How a layer's parameters are called in the task and in a library, and whether they are transposed
#: there. Two names of a library are columns of one parameter.
Names = Mapping[str, tuple[tuple[str, ...], bool]]
#: The training of one process, by its number and the options.
Train = Callable[[int, argparse.Namespace], None]


def send(event: str, **fields: object) -> None:
    """Send a message to gnnbench."""
    print(json.dumps({"event": event, **fields}), file=sys.__stdout__, flush=True)


class Data:
    """The arrays of a task folder as tensors, for one of ``options.ranks`` processes."""

    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.rank, self.options = rank, options
        self.task: dict[str, Any] = read_json(f"{options.folder}/task.json")
        manifest = read_json(f"{options.folder}/dataset/manifest.json")
        self.directed = bool(manifest["directed"])
        self.full = self.task["mode"] == "full-graph"
        self.indptr, self.indices = self.load("indptr"), self.load("indices")
        self.x, self.y = self.load("x"), self.load("y")
        self.train = torch.nonzero(self.load("train_mask") & (self.y >= 0)).flatten()
        #: The seeds of this process, and whether other processes have fewer or more.
        self.share = self.train.tensor_split(options.ranks)[rank]
        self.uneven = len(self.train) % options.ranks > 0
        #: Each process takes its part of a mini-batch.
        self.batch_size = max(1, self.task["batch_size"] // options.ranks)
        with np.load(f"{options.folder}/{self.task['parameters']}") as stored:
            self.begin = {name: torch.from_numpy(stored[name]) for name in stored.files}
        torch.set_num_threads(max(1, self.task["threads"] // options.ranks))
        torch.manual_seed(self.task["seed"] + rank)
        np.random.seed(self.task["seed"] + rank)

    def load(self, name: str) -> Tensor:
        """Return an array of the data set."""
        return torch.from_numpy(np.load(f"{self.options.folder}/dataset/{name}.npy"))


def read_json(file: str) -> dict[str, Any]:
    """Return the content of a JSON file."""
    with open(file, encoding="utf-8") as stream:
        content: dict[str, Any] = json.load(stream)
    return content


@torch.no_grad()
def read_parameters(layers: Iterable[nn.Module], names: Names, begin: Mapping[str, Tensor]) -> None:
    """Copy the task's parameters into a library's layers."""
    for number, layer in enumerate(layers):
        for name, (own, transposed) in names.items():
            value = begin[f"layers.{number}.{name}"]
            values = value.t().chunk(len(own), dim=1) if transposed else [value]
            for each, part in zip(own, values, strict=True):
                parameter = layer.get_parameter(each)
                parameter.copy_(part.reshape(parameter.shape))


@torch.no_grad()
def write_parameters(
    layers: Iterable[nn.Module], names: Names, begin: Mapping[str, Tensor]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the parameters of a library's layers in the task's form."""
    found = {}
    for number, layer in enumerate(layers):
        for name, (own, transposed) in names.items():
            values: list[Tensor] = [layer.get_parameter(each) for each in own]
            value = torch.cat(values, dim=1).t() if transposed else values[0]
            key = f"layers.{number}.{name}"
            found[key] = value.reshape(begin[key].shape).numpy()
    return found


# --------------------------------------------------------------------------- training


class Updates(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A counter of the seconds of torch's dense operations on vertices, the UPDATE of layers.

    An operation on as many rows as there are ``edges`` in a layer, with or without self loops,
    belongs to AGGREGATE. ``lost_s`` are the seconds of the counting itself.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds = self.lost_s = 0.0
        self.edges: Sequence[int] = ()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Time one operation."""
        begin_s = time.perf_counter()
        found = function(*args, **(kwargs or {}))
        end_s = time.perf_counter()
        tensors = [each for each in tree_leaves((args, found)) if isinstance(each, Tensor)]
        if not any(
            each.layout != torch.strided or (each.dim() and len(each) in self.edges)
            for each in tensors
        ):
            self.seconds += end_s - begin_s
        self.lost_s += time.perf_counter() - end_s
        return found


class Trainer:
    """The training of a model in this process, and in others that average their gradients."""

    def __init__(self, data: Data, net: nn.Module) -> None:
        self._data, self._ranks = data, data.options.ranks
        if self._ranks > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            dist.init_process_group(
                "gloo",
                f"file://{data.options.folder}/ranks",
                timeout=timedelta(days=1),  # gnnbench stops all processes between their turns
                rank=data.rank,
                world_size=self._ranks,
            )
        self.model = DistributedDataParallel(net) if self._ranks > 1 else net
        task = data.task
        self._optimiser = torch.optim.Adam(
            net.parameters(), task["learning_rate"], weight_decay=task["weight_decay"], fused=True
        )
        self._awaited_s = 0.0
        self._updates = Updates() if data.options.stages else None

    def join(self, *, uneven: bool = True) -> AbstractContextManager[object]:
        """Let a process with fewer mini-batches wait for the others below."""
        if not (uneven and isinstance(self.model, DistributedDataParallel)):
            return nullcontext()
        joined: AbstractContextManager[object] = self.model.join()
        return joined

    def watch(self, *edges: int) -> AbstractContextManager[object]:
        """Count the seconds of UPDATE below, if its stage is asked for; see :class:`Updates`."""
        if self._updates is None:
            return nullcontext()
        self._updates.edges = edges
        return self._updates

    def await_batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield a loader's mini-batches, and count the seconds in which they are awaited."""
        begin_s = time.perf_counter()
        for batch in loader:
            self._awaited_s += time.perf_counter() - begin_s
            yield batch
            begin_s = time.perf_counter()
        self._awaited_s += time.perf_counter() - begin_s

    def step(self, logits: Tensor, labels: Tensor) -> float:
        """Take an optimiser step, and return the loss."""
        loss = cross_entropy(logits, labels)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return float(loss.detach())

    def report(
        self, losses: float, updates: int, seeds: int, edges: Sequence[int] = ()
    ) -> dict[str, object]:
        """Return the report of an epoch of all processes; losses are summed over seeds."""
        sums = torch.tensor([losses, seeds, *edges], dtype=torch.float64)
        most = torch.tensor(updates)
        if self._ranks > 1:
            dist.all_reduce(sums)
            dist.all_reduce(most, dist.ReduceOp.MAX)
        loss, all_seeds, *all_edges = sums.tolist()
        counts = {"updates": int(most), "seeds": int(all_seeds)}
        return {"loss": loss / all_seeds, **counts, "edges": list(map(int, all_edges))}

    def serve(
        self,
        run_epoch: Callable[[], dict[str, object]],
        write: Callable[[], dict[str, np.ndarray[Any, Any]]],
        **ready: object,
    ) -> None:
        """Train the epochs that gnnbench orders; the first process has the messages."""
        if self._data.rank:
            while self._share():
                run_epoch()
            return
        send("ready", parts=self._ranks, **ready)
        for line in sys.stdin:
            order = json.loads(line)
            if order["order"] == "save":
                np.savez(order["file"], **write())  # type: ignore[arg-type]
                send("done")
                continue
            send("epoch_begin", epoch=order["epoch"])
            self._share(goes_on=True)
            begin_s = time.perf_counter()
            report = run_epoch()
            stages = self._take_stages(time.perf_counter() - begin_s)
            send("epoch_end", epoch=order["epoch"], stages=stages, **report)
        self._share()

    def _share(self, *, goes_on: bool = False) -> bool:
        """Return whether there is another epoch, as the first process says."""
        told = torch.tensor(int(goes_on))
        if self._ranks > 1:
            dist.broadcast(told, 0)
        return bool(told)

    def _take_stages(self, seconds: float) -> dict[str, float]:
        """Return the seconds of an epoch's stages. A loader samples and loads in one."""
        stages = {} if self._data.full else {"sample": self._awaited_s}
        updates = self._updates
        if updates is not None:
            rest_s = seconds - self._awaited_s - updates.seconds - updates.lost_s
            stages |= {"update": updates.seconds, "aggregate": max(rest_s, 0.0)}
            updates.seconds = updates.lost_s = 0.0
        self._awaited_s = 0.0
        return stages


# --------------------------------------------------------------------------- the command line


def start(
    train: Train,
    refuse: Callable[[Mapping[str, Any]], str] = lambda task: "",
    prepare: Callable[[argparse.Namespace], None] = lambda options: None,
) -> None:
    """Prepare a task, and train in this process and in the others, each with its number."""
    words = argparse.ArgumentParser()
    words.add_argument("folder")
    for name, least in (("workers", 0), ("ranks", 1), ("stages", 0)):
        words.add_argument(f"--{name}", type=int, default=least)
    options = words.parse_args()
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr  # where libraries may print
    task = read_json(f"{options.folder}/task.json")
    reason = "it does not use edge weights." if task["edge_weights"] else refuse(task)
    if options.ranks < 1:
        reason = f"its ranks are {options.ranks}; give at least 1."
    if options.workers and task["mode"] == "full-graph":
        reason = "its workers load mini-batches; choose --mode mini-batch, or no workers."
    if reason:
        return send("refused", reason=reason)
    prepare(options)
    if options.ranks > 1:
        spawn(train_beside, (train, options), options.ranks - 1, join=False)  # type: ignore[no-untyped-call]
    train_rank(train, 0, options)


def train_beside(number: int, train: Train, options: argparse.Namespace) -> None:
    """Train in another process, which writes no messages, and ends at once when there is no order.

    The interpreter would take seconds to end on a busy machine, one process after the other.
    """
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr
    train_rank(train, number + 1, options)
    os._exit(0)


def train_rank(train: Train, rank: int, options: argparse.Namespace) -> None:
    """Train in a process, and end it at once by an error, since the others would wait for it."""
    try:
        train(rank, options)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
