"""A GCN trained in NumPy alone, as a program of gnnbench, which can cheat or break on demand.

``python honest.py TASK_FOLDER [FAULT]``. In mini-batches it reads every neighbour (fan-outs 0), so
the logits of a mini-batch are those of the whole graph.
"""

import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

folder = sys.argv[1]
fault = sys.argv[2] if len(sys.argv) > 2 else ""
with open(f"{folder}/task.json") as stream:
    task = json.load(stream)
full = task["mode"] == "full-graph"


def load(name):
    return np.load(f"{folder}/dataset/{name}.npy")


indptr, indices, x, y = map(load, ("indptr", "indices", "x", "y"))
train, test = (np.flatnonzero(load(f"{name}_mask") & (y >= 0)) for name in ("train", "test"))
count = len(y)
plain = np.zeros((count, count))
plain[np.repeat(np.arange(count), np.diff(indptr)), indices] = 1.0
roots = 1.0 / np.sqrt(np.diff(indptr) + 1.0)
adjacency = roots[:, None] * (plain + np.eye(count)) * roots
with np.load(f"{folder}/{task['parameters']}") as stored:
    begin = {name: stored[name].astype(float) for name in stored.files}
parameters = {name: value.copy() for name, value in begin.items()}
moments = {name: [np.zeros_like(value), np.zeros_like(value)] for name, value in begin.items()}
steps = 0


def update(seeds):
    """Take one update, and return the mean loss over the seeds."""
    global steps
    inputs, h = [], x.astype(float)
    for layer in range(task["layers"]):
        inputs.append(adjacency @ h)
        h = inputs[-1] @ parameters[f"layers.{layer}.weight"] + parameters[f"layers.{layer}.bias"]
        if layer + 1 < task["layers"]:
            h = np.maximum(h, 0.0)
    shifted = h[seeds] - h[seeds].max(axis=1, keepdims=True)
    odds = np.exp(shifted)
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[np.arange(len(seeds)), y[seeds]]).mean()
    odds[np.arange(len(seeds)), y[seeds]] -= 1.0
    back = np.zeros_like(h)
    np.add.at(back, seeds, odds / len(seeds))
    steps += 1
    for layer in reversed(range(task["layers"])):
        gradients = {"weight": inputs[layer].T @ back, "bias": back.sum(axis=0)}
        if layer:
            back = adjacency.T @ (back @ parameters[f"layers.{layer}.weight"].T)
            back *= (
                inputs[layer - 1] @ parameters[f"layers.{layer - 1}.weight"]
                > -parameters[f"layers.{layer - 1}.bias"]
            )
        for name, gradient in gradients.items():
            step_parameter(f"layers.{layer}.{name}", gradient)
    return loss


def step_parameter(name, gradient):
    value, (mean, square) = parameters[name], moments[name]
    gradient = gradient + task["weight_decay"] * value
    mean += 0.1 * (gradient - mean)
    square += 0.001 * (gradient**2 - square)
    size = np.sqrt(square / (1 - 0.999**steps)) + 1e-8
    value -= task["learning_rate"] * mean / (1 - 0.9**steps) / size


def run_epoch(epoch):
    """Train an epoch, and return its report."""
    if full:
        seeds = np.concatenate([train, test]) if fault == "test-set" else train
        if fault == "late" and epoch >= task["epochs"]:
            seeds = train[:1]
        return {"loss": update(seeds), "updates": 1, "seeds": len(train)}
    order = np.random.default_rng((task["seed"], epoch)).permutation(train)
    if fault == "test-set":
        order = np.random.default_rng(epoch).permutation(np.concatenate([train, test]))
    batches = np.array_split(order, range(task["batch_size"], len(order), task["batch_size"]))
    trained = batches[: len(batches) // 3] if "skips" in fault else batches
    edges, losses = [0, 0], [update(batch) for batch in trained]
    degrees = np.diff(indptr)
    for batch in batches:
        sources = np.union1d(batch, np.flatnonzero(plain[batch].any(axis=0)))
        edges = [edges[0] + int(degrees[sources].sum()), edges[1] + int(degrees[batch].sum())]
    report = {"loss": float(np.mean(losses)), "updates": len(batches), "seeds": len(train)}
    if fault == "skips and says so":
        report |= {"updates": len(trained), "seeds": sum(map(len, trained))}
    if fault == "no edges":
        return report
    return report | {"edges": [2 * n for n in edges] if fault == "more edges" else edges}


def send(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


law = {} if full else {"sampling": "uniform without replacement"}
if fault == "never ready":
    time.sleep(1000)
if fault == "refuses":
    send("refused", reason="it has no licence here.")
    sys.exit()
if fault == "garbage":
    print("Epoch 0: training starts", flush=True)
versions = {"numpy": np.__version__}
if fault == "limits":
    versions["cores"] = str(sorted(os.sched_getaffinity(0)))
    versions["threads"] = os.environ["OMP_NUM_THREADS"]
    versions["memory"] = str(resource.getrlimit(resource.RLIMIT_DATA)[0])
    versions["path"] = os.environ.get("PYTHONPATH", "")
send("ready", versions=versions, **law)
for line in sys.stdin:
    order = json.loads(line)
    if order["order"] == "save":
        saved = begin if fault == "no training saved" else parameters
        if fault == "other shape":
            saved = {name: value[:1] for name, value in parameters.items()}
        if fault != "no file":
            np.savez(order["file"], **saved)
        send("done")
        continue
    epoch = order["epoch"]
    if fault == "works outside":
        time.sleep(0.1)
    send("epoch_begin", epoch=epoch)
    if fault == "works outside":
        time.sleep(0.1)
    if fault == "ends early" and epoch == 2:
        print("Segmentation fault", file=sys.stderr)
        os._exit(3)
    if fault == "no epoch_end" and epoch == 1:
        time.sleep(1000)
    if fault == "forks":
        sleep = (sys.executable, "-S", "-c", "import time; time.sleep(1000)", __file__)
        subprocess.Popen(sleep, start_new_session=True, stdout=subprocess.DEVNULL)
        fault = ""
    report = run_epoch(epoch)
    if fault == "false losses":
        report["loss"] *= 0.9
    if fault != "two epochs":
        send("epoch_end", epoch=epoch + (fault == "other epoch"), **report)
    else:  # both in one piece, whenever this process is stopped
        end = {"event": "epoch_end", "epoch": epoch, **report}
        begin = {"event": "epoch_begin", "epoch": epoch + 1}
        os.write(1, f"{json.dumps(end)}\n{json.dumps(begin)}\n".encode())
        send("epoch_end", epoch=epoch + 1, **run_epoch(epoch + 1))
if fault == "does not end":
    time.sleep(1000)
