"""The waits of MixGCN's pipeline of rounds, and their reasons."""

from tests.lowering.steps import Case, Relation, Step, Wait, always

MIXED = (
    Case("mixgcn", ("sampler.schedule=naive",)),
    Case("mixgcn", ("sampler.schedule=pipelined", "sampler.stages=3"), layers=3),
    Case("mixgcn", ("sampler.schedule=reordered", "sampler.stages=2"), accelerators=4),
    Case(
        "mixgcn",
        (
            "placement.sparse_devices=2",
            "placement.row_groups=2",
            "sampler.schedule=naive",
            "placement.sparse=apart",
        ),
        accelerators=4,
    ),
)


def message(what: str) -> str:
    return f"{what}|{what}, own part"


def same_place(one: str, other: str, *, layers: int = 0, rounds: bool = True) -> Relation:
    """An end of the later step is one of the earlier's, in the same round, the earlier one so many
    layers above."""

    def holds(later: Step, earlier: Step) -> bool:
        return (
            getattr(later, one) == getattr(earlier, other)
            and earlier.layer - later.layer == layers
            and (not rounds or later.round == earlier.round)
        )

    return holds


def ring_step_before(later: Step, earlier: Step) -> bool:
    return (
        later.ordinal // later.ring == earlier.ordinal // earlier.ring + 1
        and earlier.target in (later.source, later.target)
    )


# fmt: off
MIXED_WAITS = (
    Wait("columns are aggregated when the rows that they are of have come",
         "aggregate forward", message("representations"),
         same_place("device", "target", rounds=False)),
    Wait("aggregates are sent when they are computed",
         message("aggregates"), "aggregate forward", same_place("source", "device")),
    Wait("UPDATE reads all columns of its rows",
         "update forward", message("aggregates"), same_place("device", "target")),
    Wait("representations are sent when they are computed",
         message("representations"), "update forward", same_place("source", "device", layers=-1)),
    Wait("the loss is of a round's logits",
         "loss", "update forward", same_place("device", "device", layers=-1)),
    Wait("backward begins with the loss of the round",
         "update backward", "loss", same_place("device", "device", layers=1)),
    Wait("backward, UPDATE needs all columns of its gradients",
         "update backward", message("gradients of representations"),
         same_place("device", "target", layers=1)),
    Wait("gradients are sent when they are computed",
         message("gradients of aggregates"), "update backward", same_place("source", "device")),
    Wait("backward, aggregation needs the gradients of all its rows",
         "aggregate backward", message("gradients of aggregates"), same_place("device", "target")),
    Wait("a row's gradient goes back when all that read it have added theirs",
         message("gradients of representations"), "aggregate backward",
         same_place("source", "device", rounds=False)),
    Wait("the ring begins at a device and its target when both have their gradients",
         "all-reduce gradients", "update backward",
         lambda later, earlier: earlier.device in (later.source, later.target)),
    Wait("a step of the ring waits for the step before, at its source and at its target",
         "all-reduce gradients", "all-reduce gradients", ring_step_before),
    Wait("the step follows all averages", "average and step", "all-reduce gradients", always),
)
# fmt: on
