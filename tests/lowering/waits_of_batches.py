"""The waits of mini-batch training, and of P3's, and their reasons."""

from tests.lowering.steps import (
    Case,
    Relation,
    Step,
    Wait,
    in_round,
    in_unit,
    in_unit_listed,
    next_listed,
)

NO_CPU = "placement.cpu_trainer=false"

UNIT_MAJOR = (
    Case("reference", mode="mini-batch"),
    Case("hyscale"),
    Case("hyscale", (NO_CPU,)),
    Case("hyscale", ("communication.stages=1",)),
    Case("hyscale", (NO_CPU, "communication.stages=1")),
    Case("hyscale", (NO_CPU, "placement.accelerator_sampling=true")),
    Case("hyscale", (NO_CPU,), swaps=("communication=vanilla",)),
    Case("hyscale", (NO_CPU,), swaps=("communication=hongtu",)),
    Case("hyscale", (NO_CPU,), swaps=("communication=hyscale-hongtu",)),
    Case("hyscale", (NO_CPU,), swaps=("communication=hyscale-int8",)),
    Case("reference", mode="mini-batch", swaps=("memory=resident", "communication=none")),
    Case("pagraph"),
    Case("hyscale", (NO_CPU,), model="gat", pipelined=True),
    Case("hpgnn", kind="fpga", accelerators=1),
    Case("distdgl-v2"),
    Case("salient", ("sampler.workers=1",)),
    Case("salient", ("sampler.workers=2",), accelerators=2),
    Case("salient", ("sampler.workers=2", "communication.pipelined=false"), accelerators=2),
    Case("salient", ("sampler.workers=2", "communication.precision=half"), accelerators=1),
    Case("salient", swaps=("sampler=neighbour",)),
    Case("salient", ("sampler.workers=1",), swaps=("communication=hyscale-hongtu",)),
)

#: HyScale-GNN §III-B and Listing 1: with so many prefetch stages, the rounds that are under way,
#: the buffers of rows that the host has between loading and transfer, which are one stage or two,
#: and those of input rows that a device has.
UNDER_WAY = {0: 1, 1: 3, 2: 4}
STAGED = {0: 1, 1: 1, 2: 4}
BUFFERS = {0: 1, 1: 2, 2: 2}

DRAWN = "sample|input vertices to the host"
COPIED = "host to device|mini-batch topology|assemble input rows|pick input rows"
COMPUTED = "aggregate forward|update forward|loss|update backward|aggregate backward"
#: And what crosses for the loss where that is the host's.
CROSSING = "logits to the host|gradients of logits"
PROPAGATED = f"{COMPUTED}|{CROSSING}"
AVERAGED = "average and step|scatter gradients"
REDUCED = "all-reduce gradients"


def of_round(distance: int) -> Relation:
    """The earlier one belongs to the round so many before."""
    return lambda later, earlier: later.round - earlier.round == distance


def let_in(later: Step, earlier: Step) -> bool:
    """Where threads prepare a whole mini-batch each, as many more as there are."""
    ahead = later.preparers and later.preparers + BUFFERS[later.prefetch]
    most = ahead or UNDER_WAY[later.prefetch]
    return later.round - earlier.round == most


def prepared(later: Step, earlier: Step) -> bool:
    """In a round, or where threads prepare a whole mini-batch each, in a unit."""
    return in_unit(later, earlier) if later.preparers else in_round(later, earlier)


def staged(later: Step, earlier: Step) -> bool:
    """Of threads that prepare a whole mini-batch each, for one device."""
    if later.preparers:
        return later.device == earlier.device and let_in(later, earlier)
    return later.round - earlier.round == STAGED[later.prefetch]


def in_round_shared(later: Step, earlier: Step) -> bool:
    return in_round(later, earlier) and later.shares


def one_after_the_other(later: Step, earlier: Step) -> bool:
    """Two computations of a unit, unless they are AGGREGATE and UPDATE of one layer, pipelined."""
    at_once = (
        later.pipelined
        and later.layer == earlier.layer
        and later.backward == earlier.backward
        and not {later.label, earlier.label} & {"loss", *CROSSING.split("|")}
    )
    return in_unit_listed(later, earlier) and not at_once


# fmt: off
SYNCHRONISER = (
    Wait("a round is let in when the one that many before is synchronised",
         "sample|load features", AVERAGED, let_in),
    Wait("a round is trained with the model of the one before", PROPAGATED, AVERAGED, of_round(1)),
    Wait("the layers of a unit follow each other", PROPAGATED, PROPAGATED, one_after_the_other),
    Wait("the synchroniser waits for all trainers",
         f"gather gradients|{REDUCED}|{AVERAGED}", PROPAGATED, in_round),
    Wait("the average is of all gradients", AVERAGED, f"gather gradients|{REDUCED}", in_round),
    Wait("trainers get the average", "scatter gradients", "average and step", in_round),
)
# fmt: on

# fmt: off
UNIT_WAITS = (
    *SYNCHRONISER,
    Wait("the host learns what an accelerator has drawn",
         "input vertices to the host", "sample", in_unit),
    Wait("rows are loaded when their vertices are drawn", "load features", DRAWN, prepared),
    Wait("rows are loaded into a buffer whose rows have been transferred",
         "load features", f"{COPIED}|load features", staged),
    Wait("a mini-batch is transferred when it is drawn and loaded",
         "host to device|mini-batch topology", f"{DRAWN}|load features", prepared),
    Wait("rows go to a buffer that is free",
         "host to device|mini-batch topology|pick input rows|aggregate forward|update forward",
         AVERAGED,
         lambda later, earlier: (
             bool(later.prefetch or later.preparers)
             and later.round - earlier.round == BUFFERS[later.prefetch])),
    Wait("devices exchange what all of them have received",
         "pull", "host to device|load features", in_round),
    Wait("a device asks one peer after the other", "pull", "pull", in_unit_listed),
    Wait("input rows are put together when all of them are there",
         "assemble input rows", "host to device|load features|pull", in_unit),
    Wait("and their round is loaded", "assemble input rows", "load features", prepared),
    Wait("and, out of a buffer that peers fill too, when all devices have received theirs",
         "assemble input rows", "host to device|load features", in_round_shared),
    Wait("a device picks rows when their vertices are drawn", "pick input rows", DRAWN, prepared),
    Wait("and the blocks are there", "pick input rows", "mini-batch topology", in_unit),
    Wait("a unit computes when its rows are there", PROPAGATED, f"{COPIED}|pull", in_unit),
    Wait("a unit computes when its rows are loaded",
         PROPAGATED, f"{DRAWN}|load features", prepared),
)
# fmt: on

P3 = (Case("p3"), Case("p3", model="sage", layers=3), Case("p3", pipelined=True))

SOME = ", some columns"


def for_one_unit(later: Step, earlier: Step) -> bool:
    """Between the sum of the partial products of the unit before and this unit's."""
    return in_round(later, earlier) and later.sums == earlier.sums and earlier.index < later.index


# fmt: off
P3_WAITS = (
    *SYNCHRONISER,
    Wait("blocks are sent when they are drawn", "host to device", "sample", in_round),
    Wait("a device picks its columns when it has all blocks",
         "pick input rows", "host to device", in_unit),
    Wait("it aggregates what it has picked",
         f"aggregate forward{SOME}", "pick input rows", next_listed),
    Wait("blocks are on the host when they are drawn", "pick input rows", "sample", in_round),
    Wait("the first layer has the weights of the round before",
         f"aggregate forward{SOME}", AVERAGED, of_round(1)),
    Wait("a product is of what is aggregated",
         f"update forward{SOME}", f"aggregate forward{SOME}", next_listed),
    Wait("a product is sent when it is computed",
         "all-to-all of partial products", f"update forward{SOME}", next_listed),
    Wait("the sum is of all partial products",
         "sum of partial products", f"update forward{SOME}|all-to-all of partial products",
         for_one_unit),
    Wait("a unit goes on from its sum",
         "update forward", "sum of partial products|host to device|sample",
         lambda later, earlier: (
             in_unit(later, earlier) or (earlier.label == "sample" and in_round(later, earlier)))),
    Wait("a sum's gradient is sent when it is computed",
         "all-to-all of partial products", "update backward",
         lambda later, earlier: (
             in_round(later, earlier) and earlier.layer == 0
             and earlier.index < later.index and earlier.device == later.source)),
    Wait("a device's part of the weights has its gradient from what it was sent",
         f"update backward{SOME}", "all-to-all of partial products", next_listed),
    Wait("or from what it has computed itself",
         f"update backward{SOME}", "update backward",
         lambda later, earlier: (
             in_unit(later, earlier) and earlier.layer == 0
             and later.previous != "all-to-all of partial products")),
    Wait("the synchroniser waits for every device's part of the weights",
         "gather gradients|average and step", f"update backward{SOME}", in_round),
)
# fmt: on
