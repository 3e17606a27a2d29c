"""The waits of full-graph training, layer after layer, and their reasons."""

from tests.lowering.steps import (
    Case,
    Step,
    Wait,
    always,
    as_late,
    at_layer,
    in_round,
    in_unit,
    in_unit_listed,
    in_unit_now,
    next_listed,
    plain,
    round_before,
)

CHUNKS = ("sampler.chunks_per_partition=2",)

HOST_RESIDENT = (
    Case("hongtu", CHUNKS),
    Case("hongtu", CHUNKS, layers=3),
    Case("hongtu", CHUNKS, model="gat"),
    Case("hongtu", CHUNKS, model="gat", swaps=("memory=hongtu-cache",)),
    Case("hongtu", (*CHUNKS, "communication.buffers=separate")),
    Case("hongtu", (*CHUNKS, "memory.topology=host")),
    Case("hongtu", CHUNKS, swaps=("communication=vanilla",)),
    Case("hongtu", CHUNKS, model="gat", swaps=("communication=vanilla",)),
    Case("hongtu", (*CHUNKS, "memory.host_bytes=20kB")),
    Case(
        "hongtu", (*CHUNKS, "memory.host_bytes=20kB"), model="gat", swaps=("memory=hongtu-cache",)
    ),
    Case("hongtu", CHUNKS, pipelined=True),
    Case("hongtu", CHUNKS, model="gat", pipelined=True),
)

#: What reads the host's tensors, and what writes them.
READS = (
    "host to device|gradients to device|aggregates to device|intermediates to device|loss"
    "|accumulate on host"
)
WRITES = (
    "outputs to host|aggregates to host|intermediates to host|loss|clear gradients"
    "|accumulate on host"
)

# fmt: off
HOST_WAITS = (
    Wait("what lies on the disk is read before it is used", READS, "read from disk", next_listed),
    Wait("what is read for a unit follows what has come and left for it",
         "read from disk", "topology to device|gradients to device|gradients to host",
         in_unit_listed),
    Wait("a unit's gradients are read when every device has cleared its own",
         "read from disk", "clear gradients on device", in_round),
    Wait("what leaves of a unit follows what has been written of it",
         "aggregates to host|intermediates to host", "write to disk", in_unit_listed),
    Wait("what goes to the disk goes there when it is made", "write to disk", WRITES, next_listed),
    Wait("rows come into buffers that the round before has left",
         "host to device|read from disk", "*", round_before),
    Wait("a device reads of its peers what all have loaded", "pull", "host to device", in_round),
    Wait("a device asks one peer after the other", "pull", "pull", in_unit_listed),
    Wait("a device gives to one peer after the other", "push", "push", in_unit_listed),
    Wait("a unit computes when all rows of its round are there",
         "aggregate forward|update forward|topology to device", "host to device|pull", in_round),
    Wait("aggregation reads the chunk's topology",
         "aggregate forward", "topology to device", in_unit),
    Wait("UPDATE reads the aggregates", "update forward", "aggregate forward", plain(in_unit)),
    Wait("outputs leave when they are computed",
         "outputs to host", "aggregate forward|update forward", in_unit),
    Wait("what else leaves of a unit follows its outputs over the same link",
         "aggregates to host|intermediates to host", "outputs to host", in_unit),
    Wait("the loss is of all logits", "loss", "*", round_before),
    Wait("gradients are cleared when the layer above is done",
         "clear gradients", "*", round_before),
    Wait("gradients come to devices that the round before has left",
         "gradients to device|topology to device|clear gradients on device", "*", round_before),
    Wait("a round begins when the layer's gradients on the host are clear",
         "gradients to device|clear gradients on device|host to device|accumulate on host",
         "clear gradients", at_layer),
    Wait("places of new rows are cleared when those that are recomputed have come",
         "clear gradients on device", "host to device|pull", in_round),
    Wait("a unit goes back when every device has cleared its gradients",
         "gradients to device|topology to device", "clear gradients on device", in_round),
    Wait("a unit goes back when the rows of its round that it recomputes from are there",
         "gradients to device", "host to device|pull", in_round),
    Wait("a unit's arrivals come one after the other over its link",
         "gradients to device|aggregates to device|intermediates to device",
         "topology to device|gradients to device", in_unit_listed),
    Wait("a unit is recomputed when its gradients are there",
         "aggregate forward|update forward", "gradients to device", in_unit),
    Wait("UPDATE is recomputed from its aggregates",
         "update forward", "aggregates to device", in_unit),
    Wait("backward, UPDATE needs its outputs' gradients and its forward pass",
         "update backward",
         "gradients to device|aggregates to device|intermediates to device|update forward",
         in_unit),
    Wait("backward, UPDATE follows the recomputed aggregation",
         "update backward|aggregate backward",
         "aggregate forward|update forward|intermediates to device", in_unit),
    Wait("backward, aggregation follows UPDATE",
         "aggregate backward", "update backward", plain(in_unit)),
    Wait("gradients go to peers when they are computed",
         "push", "aggregate backward|update backward", in_unit),
    Wait("gradients leave a device when its peers have pushed theirs",
         "compact gradients", "push|aggregate backward|update backward", in_round),
    Wait("gradients leave a device when they are compact, or computed",
         "gradients to host", "compact gradients|aggregate backward|update backward", in_unit),
    Wait("the host adds gradients that have arrived",
         "accumulate on host", "gradients to host", in_unit),
    Wait("devices average when the last gradient is there",
         "all-reduce gradients", "*", round_before),
    Wait("the step follows all averages", "average and step", "all-reduce gradients", always),
)
# fmt: on

ADAPTIVE = ("communication.metric=embeddings", "communication.change=0.1")

DEVICE_RESIDENT = (
    Case("reference", mode="full-graph", accelerators=1),
    Case("partition"),
    Case("partition", layers=3),
    Case("partition", model="gat", pipelined=True),
    Case("hongtu-im"),
    Case("cagnet"),
    Case("distdgl-full-graph"),
    Case("neutronstar", layers=3),
    Case("neutronstar", model="gat", pipelined=True),
    Case("roc", ("memory.swap=all",), layers=3),
    Case("roc", ("memory.swap=all",), model="gat", pipelined=True),
    Case("bnsgcn", ("communication.rate=0.5",)),
    Case("pipegcn", epochs=3, late=True),
    Case("sancus", ("communication.staleness=2", "communication.stale_gradients=true"), epochs=2),
    Case("sancus", ADAPTIVE, epochs=2, layers=3),
    Case("distgnn", ("communication.delay=2",), kind="cpu", epochs=4, late=True),
)


def told_of(later: Step, earlier: Step) -> bool:
    """The later one tells another device what the earlier one has found on its own."""
    return in_round(later, earlier) and later.source == earlier.target


# fmt: off
DEVICE_WAITS = (
    Wait("rows are compared and kept when all devices have made theirs",
         "measure change|keep sent rows", "*", round_before),
    Wait("a change is told when it is measured", "tell change", "measure change", told_of),
    Wait("what crosses is decided when all changes are known",
         "keep sent rows|pull|aggregate forward|update forward", "tell change", in_round),
    Wait("what crosses is what has been kept",
         "pull|aggregate forward|update forward", "keep sent rows", in_round),
    Wait("rows are read when all devices have made theirs",
         "pull|take rows that arrived", "*", round_before),
    Wait("a device receives from one peer after the other",
         "pull|take rows that arrived", "pull|take rows that arrived", in_unit_listed),
    Wait("a device sends to one peer after the other",
         "pull", "pull", in_unit_listed, of_late=True),
    Wait("a device gives to one peer after the other", "push", "push", as_late, of_late=True),
    Wait("a unit computes when all rows of its round are there",
         "aggregate forward|update forward", "pull|take rows that arrived", in_round),
    Wait("a unit computes when the layer before is over",
         "aggregate forward|update forward|update backward|aggregate backward", "*", round_before),
    Wait("UPDATE reads the aggregates", "update forward", "aggregate forward", plain(in_unit)),
    Wait("what a layer keeps crosses when all devices are done with what was before",
         "intermediates to host|intermediates to device", "*", round_before),
    Wait("what a layer keeps crosses when all devices have computed it",
         "intermediates to host", "aggregate forward|update forward", at_layer),
    Wait("a layer goes back when what it keeps is on all devices",
         "clear gradients|update backward|aggregate backward", "intermediates to device", at_layer),
    Wait("the loss is of all logits", "loss", "*", round_before),
    Wait("gradients are cleared when the layer above is done",
         "clear gradients", "*", round_before),
    Wait("gradients are added to what all devices have cleared",
         "update backward|aggregate backward|push|add stale gradients", "clear gradients",
         at_layer),
    Wait("backward, aggregation follows UPDATE",
         "aggregate backward", "update backward", plain(in_unit)),
    Wait("gradients go to peers when they are computed",
         "push", "aggregate backward|update backward", in_unit),
    Wait("what a peer sent last is added after what it sends now",
         "add stale gradients", "push|aggregate backward|add stale gradients", in_unit_now),
    Wait("devices average when the last gradient is there",
         "all-reduce gradients", "*", round_before),
    Wait("the step follows all averages", "average and step", "all-reduce gradients", always),
    Wait("the step of a device alone follows its gradients", "average and step", "*", round_before),
)
# fmt: on
