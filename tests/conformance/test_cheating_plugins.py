"""Plugins that cheat or err, each with the check and the sentence that catch it."""

from __future__ import annotations

import re

import pytest

from gnnbench import conformance, errors, plugins

CHECKS = {check.name: check for check in conformance.CHECKS}

SAMPLER = """
@dataclass
class Wrong(NeighbourSampler):
    '''Is not what it says.'''
    name = "wrong"
    summary = "not what it says"
"""
KERNEL = """
@dataclass
class Wrong(TorchKernel):
    '''Is not what it says.'''
    name = "wrong"
    summary = "not what it says"
"""
COMMUNICATION = """
@dataclass(frozen=True)
class Wrong(VanillaCommunication):
    '''Is not what it says.'''
    name = "wrong"
    summary = "not what it says"
"""
PLACEMENT = """
@dataclass(frozen=True)
class Wrong(SinglePlacement):
    '''Is not what it says.'''
    name = "wrong"
    summary = "not what it says"
"""
MEMORY = """
@dataclass(frozen=True)
class Wrong(HostMemory):
    '''Is not what it says.'''
    name = "wrong"
    summary = "not what it says"
"""
HEADS = {
    "sampler": SAMPLER,
    "kernel": KERNEL,
    "communication": COMMUNICATION,
    "placement": PLACEMENT,
    "memory": MEMORY,
}

# --------------------------------------------------------------------------- samplers

NO_NEIGHBOURS = """
    def sample(self, seeds, epoch, threads):
        none = np.zeros(len(seeds) + 1, dtype=np.int64)
        block = Block(seeds.copy(), len(seeds), none, np.empty(0, dtype=np.int32))
        return (block,) * self._setting.workload.num_layers
"""
TEST_VERTICES = """
    def rounds(self, epoch):
        return [np.flatnonzero(self._setting.dataset.test_mask).astype(np.int64)]
"""
FEW_SEEDS = """
    def rounds(self, epoch):
        return [seeds[:max(1, len(seeds) // 10)] for seeds in super().rounds(epoch)]
"""
NARROW = """
    def begin(self, setting):
        import dataclasses
        workload = dataclasses.replace(setting.workload, fanouts=(1,) * setting.workload.num_layers)
        super().begin(dataclasses.replace(setting, workload=workload))
"""
#: Draws for each vertex and layer from a generator of its own, by ``choose``.
DRAWS = """
    heeds_fanouts = True
    def sample(self, seeds, epoch, threads):
        graph, blocks, rows = self._setting.dataset.graph, [], seeds
        for depth, fanout in enumerate(self._setting.workload.fanouts):
            drawn = []
            for vertex in rows.tolist():
                row = graph.indices[graph.indptr[vertex]:graph.indptr[vertex + 1]].astype(np.int64)
                key = self.key(epoch, depth, vertex)
                random = np.random.default_rng([7, *key])
                few = len(row) <= fanout
                drawn.append(row if few else row[self.choose(random, len(row), fanout)])
            ends = np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)
            sources = np.concatenate((rows, np.setdiff1d(ends, rows)))
            place = {vertex: at for at, vertex in enumerate(sources.tolist())}
            counts = [len(each) for each in drawn]
            indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
            indices = np.array([place[end] for end in ends.tolist()], dtype=np.int32)
            blocks.append(Block(sources, len(rows), indptr, indices))
            rows = sources
        return tuple(reversed(blocks))
    def key(self, epoch, depth, vertex):
        return epoch, depth, vertex
    def choose(self, random, degree, fanout):
        return random.permutation(degree)[:fanout]
"""
FLOYD = (
    DRAWS
    + """
    def choose(self, random, degree, fanout):
        chosen = []
        for last in range(degree - fanout, degree):
            place = int(random.integers(0, max(1, last)))
            chosen.append(last if place in chosen else place)
        return np.array(chosen)
"""
)
#: Every neighbour as often as any other, but never any two together.
ONLY_PAIRS = (
    DRAWS
    + """
    def choose(self, random, degree, fanout):
        return (int(random.integers(degree)) + np.arange(fanout)) % degree
"""
)
SAME_EVERY_EPOCH = (
    DRAWS
    + """
    def key(self, epoch, depth, vertex):
        return depth, vertex
"""
)
SAME_IN_LAYERS = (
    DRAWS
    + """
    def choose(self, random, degree, fanout):
        return random.permutation(degree)[:fanout]
    def key(self, epoch, depth, vertex):
        return epoch, vertex
"""
)
SAME_FOR_ALL = (
    DRAWS
    + """
    def key(self, epoch, depth, vertex):
        return epoch, depth
"""
)
EVERY_OTHER_EPOCH = (
    DRAWS
    + """
    def key(self, epoch, depth, vertex):
        return epoch // 2, depth, vertex
"""
)
BY_PLACE = """
    def sample(self, seeds, epoch, threads):
        from gnnbench.kernels import dispatch
        graph, workload = self._setting.dataset.graph, self._setting.workload
        return dispatch.sample_neighbours(
            graph.indptr, graph.indices, seeds, workload.fanouts,
            seed=workload.seed + len(seeds), epoch=epoch, threads=threads)
"""
COUNTS_CALLS = (
    DRAWS
    + """
    calls = 0
    def key(self, epoch, depth, vertex):
        type(self).calls += 1
        return epoch, depth, vertex, type(self).calls
"""
)
DENIES_FANOUTS = """
    heeds_fanouts = False
    law = "of its own"
"""
CLAIMS_THE_LAW = """
    law = ""
    def sampling(self, workload):
        return f"uniform without replacement, fan-outs {workload.fanouts}"
"""

# --------------------------------------------------------------------------- kernels

OVERWRITES = """
    def adjacency(self, block, dtype, device):
        adjacency = super().adjacency(block, dtype, device)
        plain = adjacency.sum_transposed
        def overwrite(g, weight=None, into=None):
            out = plain(g, weight)
            return out if into is None else into.copy_(out)
        adjacency.sum_transposed = overwrite
        return adjacency
"""
ZERO_BEYOND_64 = """
    def adjacency(self, block, dtype, device):
        adjacency = super().adjacency(block, dtype, device)
        plain = adjacency.sum
        def narrow(h, weight=None):
            out = plain(h, weight).clone()
            out[:, 64:] = 0
            return out
        adjacency.sum = narrow
        return adjacency
"""
FORGETS_BIAS = """
    def linear(self, a, weight, bias, *, relu, masked=False):
        return super().linear(a, weight, 0 * bias, relu=relu, masked=masked)
"""
WRONG_SOFTMAX = """
    def adjacency(self, block, dtype, device):
        adjacency = super().adjacency(block, dtype, device)
        adjacency.edge_softmax = lambda scores: scores.softmax(0)
        return adjacency
"""
NOT_A_NUMBER = """
    def adjacency(self, block, dtype, device):
        adjacency = super().adjacency(block, dtype, device)
        plain = adjacency.mean
        adjacency.mean = lambda h: plain(h) + (float("nan") if h.shape[1] == 100 else 0.0)
        return adjacency
"""


def takes(text):
    return f"""
    def seconds(self, work, device):
        return {text}
"""


NO_MEMORY = """
    def adjacency_bytes(self, block, layer, itemsize):
        return 0
"""
TOO_MUCH_MEMORY = """
    def adjacency_bytes(self, block, layer, itemsize):
        return 10 * super().adjacency_bytes(block, layer, itemsize)
"""

COPY = "out.detach().clone()"
KEEPS_SUMS = """
    def adjacency(self, block, dtype, device):
        adjacency = super().adjacency(block, dtype, device)
        plain = adjacency.sum
        def kept(*operands, **named):
            out = plain(*operands, **named)
            {where}.append({kept})
            return out
        adjacency.sum = kept
        return adjacency
"""
ON_ITSELF = (
    KEEPS_SUMS.format(where="self._sums", kept=COPY)
    + """
    def __post_init__(self):
        self._sums = []
"""
)
ON_ITS_CLASS = KEEPS_SUMS.format(where="Wrong._sums", kept=COPY) + "    _sums = []\n"
#: In a tensor that is made of another, as PyG's EdgeIndex is.
WRAPPED = (
    """
import torch

class Around(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)
"""
    + KERNEL
    + KEEPS_SUMS.format(where="Wrong._sums", kept=f"Around({COPY})")
    + "    _sums = []\n"
)

# --------------------------------------------------------------------------- other parts


def draws_by(library):
    return f"    from gnnbench.costs import Library\n    library = Library({library})\n"


ROUNDING = """
@dataclass(frozen=True)
class Wrong(RoundedLoading):
    '''Is not what it says.'''
    name = "wrong"
    summary = "not what it says"
    rounded: bool = option(False, "round features")
    @property
    def rounds_to(self):
        return "float16" if self.rounded else ""
    def pack(self, rows):
        return (rows.half(),) if self.rounded else (rows,)
    def unpack(self, crossed, dtype):
        return crossed[0].to(dtype)
"""
ONE_BYTE = """
    def row_bytes(self, width, dtype):
        return 1
"""
LOSES_ROWS = """
    def unpack(self, crossed, dtype):
        return crossed[0].to(dtype) * (0 if self.rounded else 1)
"""
ROUNDS_IN_SECRET = """
    def pack(self, rows):
        return (rows.half(),)
"""
PACKS_IN_PLACE = """
    def pack(self, rows):
        return (rows.mul_(2),)
"""
REFUSES_ALL = """
    def refuses(self, bundle, setting):
        return "it works on paper only."
"""
CACHES_ALL = """
@dataclass(frozen=True)
class Wrong(CacheMemory):
    '''Is not what it says.'''
    name = "wrong"
    summary = "not what it says"
    def open(self, setting, num_rows):
        everything = np.arange(setting.dataset.graph.num_vertices, dtype=np.int64)
        return CacheSession({slot: everything for slot in num_rows})
"""
IDLE_TRAINERS = """
    def trainers(self, platform):
        return platform.accelerators[:2] or (platform.host,)
    def open(self, setting, profiles, prefetch):
        return AllToTheFirst()
class AllToTheFirst(SeedSession):
    def share_out(self, seeds):
        return [(Share(0, len(seeds)), seeds), (Share(1, 0), seeds[:0])]
"""
NEVER_CALLED = """
class Roomless(CacheSession):
    def turn_over(self, slot, asked, found):
        return None
@dataclass(frozen=True)
class Wrong(CacheMemory):
    '''Has no room for any row, so that nobody asks it what to admit.'''
    name = "wrong"
    summary = "not what it says"
    def count_rows(self, setting, free_bytes, mini_batch_bytes):
        return 0
    def open(self, setting, num_rows):
        return Roomless({slot: np.empty(0, dtype=np.int64) for slot in num_rows}, num_rows)
"""
WRONG_BY_CHOICE = """
    doubled: bool = option(False, "another way to add")
    def adjacency(self, block, dtype, device):
        adjacency = super().adjacency(block, dtype, device)
        if self.doubled:
            plain = adjacency.sum_scaled
            adjacency.sum_scaled = lambda h, scaling: 2 * plain(h, scaling)
        return adjacency
"""


@pytest.mark.parametrize(
    ("kind", "body", "check", "says"),
    [
        ("sampler", NO_NEIGHBOURS, "every-vertex-once", r"vertex \d+ has 0 in-edges where \d"),
        ("sampler", NO_NEIGHBOURS, "sampling-law", r"vertex \d+ has 0 in-edges where \d"),
        (
            "sampler",
            "    law = 'of its own'\n    heeds_fanouts = False\n" + NO_NEIGHBOURS,
            "every-vertex-once",
            "no unit of the epoch has an edge",
        ),
        ("sampler", TEST_VERTICES, "every-vertex-once", r"\d+ training vertices in no unit"),
        ("sampler", FEW_SEEDS, "every-vertex-once", r"\d+ training vertices in no unit"),
        ("sampler", NARROW, "every-vertex-once", r"has 1 in-edges where \d+ are due"),
        ("sampler", FLOYD, "sampling-law", r"degree \d, fan-out \d, .*outcomes is due \d+ times"),
        ("sampler", ONLY_PAIRS, "sampling-law", r"degree 4, fan-out 2, .* 6 outcomes is due"),
        ("sampler", SAME_EVERY_EPOCH, "sampling-law", r"each of \d+ outcomes is due"),
        ("sampler", EVERY_OTHER_EPOCH, "sampling-law", "two epochs: of"),
        ("sampler", SAME_IN_LAYERS, "sampling-law", "degree 4, at two layers: of"),
        ("sampler", SAME_FOR_ALL, "sampling-law", r"fan-out 2, .* outcomes is due"),
        ("sampler", BY_PLACE, "sampling-law", "is given every other of a round's seeds"),
        ("sampler", COUNTS_CALLS, "sampling-law", r"draws epoch \d otherwise when it is drawn"),
        ("sampler", DENIES_FANOUTS, "sampling-law", r"does not heed fan-outs, and draws \d+"),
        ("sampler", CLAIMS_THE_LAW, "sampling-law", r"and its law is ''; let both say the same"),
        (
            "kernel",
            OVERWRITES,
            "kernel-maths",
            "of sum of width 1, added to the rows given as 'into', is ",
        ),
        ("kernel", ZERO_BEYOND_64, "kernel-maths", r"sum of width 65 is 0 at \[\d+, 64\]"),
        ("kernel", FORGETS_BIAS, "kernel-maths", "linear without weights is .* dense matrices"),
        ("kernel", WRONG_SOFTMAX, "kernel-maths", "edge_softmax is "),
        ("kernel", NOT_A_NUMBER, "kernel-maths", "mean of width 100 is nan"),
        ("kernel", takes("0.0"), "costs", r"states 0\.0 s .*give a time above zero"),
        ("kernel", takes("float('inf')"), "costs", "which is no time"),
        ("kernel", takes("1e-9"), "costs", r"its bytes and operations alone take"),
        ("kernel", takes("3600.0"), "costs", "has the wrong unit"),
        (
            "kernel",
            takes("super().seconds(work, device) / work.features ** 2"),
            "costs",
            "which is less than the|its bytes and operations alone",
        ),
        ("kernel", NO_MEMORY, "costs", r"states adjacency_bytes of 0 .* adjacency holds [\d,]+"),
        ("kernel", TOO_MUCH_MEMORY, "costs", r"adjacency holds [\d,]+, far less"),
        (
            "communication",
            ROUNDING + ONE_BYTE,
            "costs",
            r"states row_bytes of 1 for 1 values .* 20 bytes",
        ),
        ("kernel", ON_ITSELF, "costs", r"states adjacency_bytes of [\d,]+ .* holds [\d,]+"),
        ("kernel", ON_ITS_CLASS, "costs", r"states adjacency_bytes of [\d,]+ .* holds [\d,]+"),
        ("kernel", WRAPPED, "costs", r"states adjacency_bytes of [\d,]+ .* holds [\d,]+"),
        (
            "sampler",
            draws_by("sampled_edges_per_s=1e18"),
            "costs",
            "its bytes and operations alone",
        ),
        (
            "sampler",
            draws_by("sampled_edges_per_s=float('inf'), sampling_call_s=0.009"),
            "costs",
            "let more work take longer",
        ),
        ("sampler", draws_by("sampled_edges_per_s=float('nan')"), "costs", "which is no time"),
        ("sampler", draws_by("sampled_edges_per_s=-1e6"), "costs", "give a time above zero"),
        ("sampler", draws_by("sampled_edges_per_s=1.0"), "costs", "has the wrong unit"),
        (
            "sampler",
            draws_by("sampling_call_s=1e-6, worker_start_s=-1e-9"),
            "costs",
            r"\(workers started: 1\), and .* \(workers started: 0\); let more work take longer",
        ),
        ("communication", ROUNDING + ROUNDS_IN_SECRET, "costs", "it does not say that it rounds"),
        ("communication", ROUNDING + PACKS_IN_PLACE, "costs", "writes into the rows that it packs"),
        (
            "memory",
            CACHES_ALL,
            "costs",
            "caches 60 rows where mini-batches leave room for 0",
        ),
        ("kernel", WRONG_BY_CHOICE, "every-choice", "kernel.doubled=True: losses .* are off"),
        ("placement", REFUSES_ALL, "same-maths", "refuses every model .* it works on paper only"),
        ("placement", IDLE_TRAINERS, "reached", "of its trainers gpu1 computed nothing"),
        ("memory", NEVER_CALLED, "reached", r"nothing called turn_over\(\) of memory"),
    ],
)
def test_a_cheat_is_caught(load_wrong, kind, body, check, says, one_thread):
    body = body if "class Wrong" in body else HEADS[kind] + body
    outcome = conformance.run_check(CHECKS[check], load_wrong(kind, body), "wrong")
    assert outcome.status == ("not-reached" if check == "reached" else "failed"), outcome.reason
    assert re.search(says, outcome.reason), outcome.reason


def test_draws_that_the_cheats_are_made_from_are_right(load_wrong):
    """What the wrong samplers change one thing of passes, so that it is that one thing."""
    registry = load_wrong("sampler", SAMPLER + DRAWS)
    outcome = conformance.run_check(CHECKS["sampling-law"], registry, "wrong")
    assert outcome.status == "passed", outcome.reason
    assert "as likely as 'uniform without replacement' says" in outcome.reason


def test_a_law_of_its_own_is_said_not_to_be_tested(load_wrong):
    registry = load_wrong("sampler", SAMPLER + "    law = 'by degree'\n" + FLOYD)
    outcome = conformance.run_check(CHECKS["sampling-law"], registry, "wrong")
    assert outcome.status == "passed", outcome.reason
    assert "(by degree), so its distribution was not tested" in outcome.reason


def test_what_a_sampler_states_of_drawing_is_checked(load_wrong):
    registry = load_wrong("sampler", SAMPLER + draws_by("sampling_call_s=1e-4"))
    outcome = conformance.run_check(CHECKS["costs"], registry, "sampler=wrong")
    assert outcome.status == "passed", outcome.reason
    assert re.search(r"sampler 'wrong' draws on \d\d devices in what they can", outcome.reason)
    full = conformance.run_check(CHECKS["costs"], registry, "sampler=full-graph")
    assert (full.status, full.reason) == (
        "not-applicable",
        "samplers of full graphs state no costs",
    )


def test_rounding_that_an_option_turns_on_is_checked_with_it(load_wrong):
    registry = load_wrong("communication", ROUNDING + LOSES_ROWS)
    check, rounded = CHECKS["costs"], {"communication": {"rounded": "true"}}
    assert conformance.run_check(check, registry, "wrong").status == "passed"
    outcome = conformance.run_check(check, registry, "wrong", options=rounded)
    assert outcome.status == "failed"
    assert "unpacks a row off by" in outcome.reason


@pytest.mark.parametrize(
    ("array", "statement"),
    [
        ("features", "setting.dataset.features[0, 0] += 1"),
        ("labels", "setting.dataset.labels[0] = 1 - setting.dataset.labels[0]"),
        ("indptr", "setting.dataset.graph.indptr[-2:-1] -= 1"),
        ("indices", "setting.dataset.graph.indices[:2] = setting.dataset.graph.indices[1::-1]"),
        ("train_mask", "setting.dataset.train_mask[1] = True"),
        ("test_mask", "setting.dataset.test_mask[:] = False"),
    ],
)
@pytest.mark.parametrize("kind", ["sampler", "memory"])
def test_a_part_that_writes_into_the_dataset_is_caught(load_wrong, kind, array, statement):
    body = f"""
    def begin(self, setting):
        {statement}
        super().begin(setting)
"""
    registry = load_wrong(kind, HEADS[kind] + body)
    outcome = conformance.run_check(CHECKS["dataset-untouched"], registry, "wrong")
    assert outcome.status == "failed"
    said = rf"wrote into the dataset it was handed \(conformance\): .*\b{array} changed"
    assert re.search(said, outcome.reason), outcome.reason


def test_a_strategy_that_refuses_the_first_graph_is_tried_on_another(load_wrong):
    body = """
    def refuses(self, bundle, setting):
        return None if setting.dataset.graph.degrees.min() else "no isolated vertices, please."
"""
    registry = load_wrong("placement", PLACEMENT + body)
    for outcome in conformance.check_strategy(registry, "wrong"):
        expected = "passed" if outcome.check != "sampling-law" else "not-reached"
        if outcome.check in ("options-documented", "every-choice"):
            continue
        assert outcome.status == expected, f"{outcome.check}: {outcome.reason}"


# --------------------------------------------------------------------------- exceptions

UNREADABLE = """
class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no words")
class Base(BaseException):
    pass
"""
WHERE = {
    "sampler": "    def rounds(self, epoch):\n        {raises}\n",
    "placement": "    def open(self, setting, profiles, prefetch):\n        {raises}\n",
    "memory": "    def begin(self, setting):\n        {raises}\n",
    "kernel": "    def adjacency(self, block, dtype, device):\n        {raises}\n",
    "communication": "    def open(self, owner):\n        {raises}\n",
}
RAISED = {
    "raise SystemExit(0)": "SystemExit",
    "raise Base('gone')": "Base",
    "raise Unreadable": "Unreadable",
    "raise GeneratorExit": "GeneratorExit",
}


@pytest.mark.parametrize("statement", RAISED)
@pytest.mark.parametrize("kind", WHERE)
def test_whatever_a_part_raises_is_a_failed_check_with_a_sentence(load_wrong, kind, statement):
    body = UNREADABLE + HEADS[kind] + WHERE[kind].format(raises=statement)
    outcomes = conformance.check_strategy(load_wrong(kind, body), "wrong")
    assert [outcome.check for outcome in outcomes] == list(CHECKS)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    assert {"same-maths", "legal-timeline", "deterministic"} <= {each.check for each in failed}
    assert any(RAISED[statement] in outcome.reason for outcome in failed)
    assert all(outcome.reason and "\n" not in outcome.reason for outcome in outcomes)


def test_the_keyboard_still_interrupts(load_wrong):
    body = MEMORY + WHERE["memory"].format(raises="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        conformance.run_check(CHECKS["deterministic"], load_wrong("memory", body), "wrong")


# --------------------------------------------------------------------------- parts and options


def test_a_part_is_checked_in_a_strategy_that_takes_it():
    registry = plugins.load()
    outcomes = {o.check: o for o in conformance.check_strategy(registry, "communication=hongtu")}
    assert "p2p (true or false" in outcomes["options-documented"].reason
    assert "numa_aware" not in outcomes["options-documented"].reason
    assert outcomes["described"].reason.endswith("1 parts")


def test_a_part_in_no_strategy_is_put_into_the_reference(load_wrong):
    body = KERNEL.replace("Wrong", "Mine").replace('"wrong"', '"mine"') + ZERO_BEYOND_64
    body += "\n@hookimpl(specname='gnnbench_kernel')\ndef more():\n    return [Mine]\n"
    registry = load_wrong("kernel", KERNEL + body)
    outcome = conformance.run_check(CHECKS["kernel-maths"], registry, "kernel=mine")
    assert outcome.status == "failed"
    assert "kernel 'mine', float32, a block with isolated rows: sum of width 65" in outcome.reason


def test_what_there_is_not_is_an_error(load_wrong):
    registry = plugins.load()
    with pytest.raises(errors.PluginError, match="there is no kernel 'nativ'"):
        conformance.check_strategy(registry, "kernel=nativ")
    with pytest.raises(errors.UsageError, match="no option 'colour'"):
        conformance.check_strategy(registry, "native", options={"kernel": {"colour": "red"}})
