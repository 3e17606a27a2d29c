"""The waits of full-graph training past which vertex data is streamed, and their reasons."""

from tests.lowering.steps import Case, Relation, Step, Wait

PIECES = ("sampler.chunks_per_device=2",)
WHOLE = ("sampler=hongtu",)

STREAMED = (
    Case("neugraph", PIECES, accelerators=2),
    Case("neugraph", PIECES, accelerators=2, layers=3, model="sage"),
    Case("neugraph", (*PIECES, "communication.overlap=false"), accelerators=2),
    Case("neugraph", (*PIECES, "memory.topology=host"), accelerators=2),
    Case("neugraph", PIECES, swaps=("memory=hongtu",), accelerators=2),
    Case("neugraph", PIECES, swaps=("communication=vanilla",), accelerators=2),
    Case("neugraph", PIECES, accelerators=2, pipelined=True),
    Case("neugraph", swaps=WHOLE, model="gat"),
    Case("neugraph", ("memory.topology=host",), swaps=(*WHOLE, "memory=hongtu"), model="gat"),
    Case("neugraph", swaps=(*WHOLE, "memory=hongtu-cache"), model="gat", pipelined=True),
    Case("neugraph", swaps=(*WHOLE, "memory=hongtu")),
)

#: What crosses to a device for a unit, and what is computed of it.
COMES = (
    "topology to device|host to device|gradients to device|aggregates to device"
    "|intermediates to device"
)
WORK = "aggregate forward|add sums of a piece|update forward|update backward|aggregate backward"
LEAVES = "outputs to host|aggregates to host|intermediates to host"
ANY = f"{COMES}|{WORK}|{LEAVES}|gradients to host|accumulate on host"


def in_pass(later: Step, earlier: Step) -> bool:
    """Of one layer and way, and of one device."""
    return (
        later.layer == earlier.layer
        and later.backward == earlier.backward
        and later.device == earlier.device
    )


def in_unit(later: Step, earlier: Step) -> bool:
    return in_pass(later, earlier) and later.round == earlier.round


def in_unit_listed(later: Step, earlier: Step) -> bool:
    return in_unit(later, earlier) and earlier.index < later.index


def in_chunk(later: Step, earlier: Step) -> bool:
    """Of pieces of one chunk."""
    same = later.round // later.pieces == earlier.round // earlier.pieces
    return in_pass(later, earlier) and same


def of_chunk_before(later: Step, earlier: Step) -> bool:
    return (
        in_pass(later, earlier) and later.round // later.pieces == earlier.round // later.pieces + 1
    )


def at_place(later: Step, earlier: Step) -> bool:
    """The earlier round had the place of the later one in the ring."""
    behind = later.round - earlier.round
    return in_pass(later, earlier) and behind > 0 and behind % later.places == 0


def takes_up(step: Step) -> bool:
    """Whether a step is what crossed, or reads it and not what others have made of it."""
    if step.label == "update forward":
        again = step.backward and step.previous != "aggregate forward"
        return again or (step.pipelined and step.pieces == 1)
    if step.label == "update backward":
        return step.previous != "update forward"
    if step.label == "aggregate backward":
        rows = ("topology to device", "intermediates to device", "host to device")
        return not step.arrived.isdisjoint(rows)
    return step.label != "add sums of a piece"


def is_first(step: Step) -> bool:
    return step.round % step.pieces == 0


def pass_before(later: Step, earlier: Step) -> bool:
    """The earlier step belongs to what all devices have done before they go on together to the
    pass of the later one."""
    if earlier.label in ("all-reduce gradients", "average and step"):
        return False
    if later.label in ("all-reduce gradients", "average and step"):
        return earlier.backward and earlier.layer == 0
    if later.label == "loss":
        return not earlier.backward and earlier.layer == later.layer - 1
    if not later.backward:
        return not earlier.backward and earlier.layer == later.layer - 1
    cleared = later.layer > 0 and later.label != "clear gradients"
    if cleared:
        return earlier.label == "clear gradients" and earlier.layer == later.layer
    above = earlier.backward or earlier.label == "loss"
    return above and earlier.layer == later.layer + 1


def forward(relation: Relation) -> Relation:
    return lambda later, earlier: relation(later, earlier) and not later.backward


def backward(relation: Relation) -> Relation:
    return lambda later, earlier: relation(later, earlier) and later.backward


# fmt: off
STREAM_WAITS = (
    Wait("a layer begins, or goes back, when the one before is done on all devices",
         f"{ANY}|loss|clear gradients|all-reduce gradients", "*", pass_before),
    Wait("what crosses for a unit crosses in turn", COMES, COMES, in_unit_listed),
    Wait("what crosses takes the place of a unit that has been worked on",
         COMES, f"{COMES}|{WORK}",
         lambda later, earlier: at_place(later, earlier) and takes_up(earlier)),
    Wait("a unit is worked on when all that it reads is there", WORK, COMES, in_unit),
    Wait("sums of a piece are added to those of the first",
         "add sums of a piece", "aggregate forward",
         lambda later, earlier: (
             in_unit(later, earlier) or (in_chunk(later, earlier) and is_first(earlier)))),
    Wait("UPDATE follows the sums of all pieces",
         "update forward", "aggregate forward|add sums of a piece",
         lambda later, earlier: (
             in_chunk(later, earlier) and (not later.pipelined or later.pieces > 1))),
    Wait("sums begin anew when UPDATE has read those of the chunk before",
         "aggregate forward", "aggregate forward|add sums of a piece|update forward",
         forward(lambda later, earlier: (
             of_chunk_before(later, earlier) and is_first(later) and later.pieces > 1))),
    Wait("outputs leave when they are computed",
         "outputs to host", "aggregate forward|update forward", in_unit),
    Wait("what else leaves of a chunk follows its outputs over the same link",
         "aggregates to host|intermediates to host", "outputs to host", in_unit),
    Wait("outputs are made where those of the chunk before have left",
         "update forward", LEAVES, forward(of_chunk_before)),
    Wait("and so is all of a chunk that comes at once",
         "aggregate forward", LEAVES,
         forward(lambda later, earlier: of_chunk_before(later, earlier) and later.pieces == 1)),
    Wait("UPDATE goes back from what has been computed again",
         "update backward", "aggregate forward|update forward", in_unit),
    Wait("aggregation goes back after UPDATE", "aggregate backward", "update backward", in_chunk),
    Wait("UPDATE goes back when all pieces of the chunk before have",
         "update backward", "update backward|aggregate backward", of_chunk_before),
    Wait("gradients leave when they are there", "gradients to host", "aggregate backward", in_unit),
    Wait("gradients are made where others have left",
         "aggregate backward", "aggregate backward|gradients to host",
         lambda later, earlier: at_place(later, earlier) and later.layer > 0),
    Wait("the host adds gradients that have arrived",
         "accumulate on host", "gradients to host", in_unit),
    Wait("the step follows all averages",
         "average and step", "all-reduce gradients", lambda later, earlier: True),
)
# fmt: on
