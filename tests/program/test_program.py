"""What steps wait for, from the buffers that they use."""

from hypothesis import given
from hypothesis import strategies as st

from gnnbench.program import Access, Buffer, Place, Step, Waits
from gnnbench.records import CopyWork

A, B = Buffer("a"), Buffer("b")


def step(reads=(), writes=(), adds=()):
    access = Access(tuple(reads), tuple(writes), tuple(adds))
    return Step(None, "update", "", Place("cpu"), CopyWork(), access=access)


def follow(*steps):
    waits = Waits()
    return [waits.follow(each, number) for number, each in enumerate(steps)]


def test_a_reader_waits_for_the_writer_and_for_all_who_added():
    found = follow(step(writes=(A,)), step(adds=(A,)), step(adds=(A,)), step(reads=(A,)))
    assert found == [(), (0,), (0,), (0, 1, 2)]


def test_a_writer_waits_for_all_who_used_what_it_replaces():
    found = follow(step(adds=(A,)), step(reads=(A,)), step(writes=(A,)), step(reads=(A,)))
    assert found == [(), (0,), (0, 1), (2,)]


def test_who_adds_waits_for_readers_and_not_for_others_who_add():
    found = follow(step(writes=(A,)), step(reads=(A,)), step(adds=(A,)), step(adds=(A,)))
    assert found == [(), (0,), (0, 1), (0, 1)]


def test_buffers_of_one_name_are_two():
    assert follow(step(writes=(A,)), step(reads=(Buffer("a"),))) == [(), ()]


@given(
    st.lists(
        st.tuples(*[st.lists(st.sampled_from((A, B)), unique=True, max_size=2)] * 3), max_size=12
    )
)
def test_steps_that_touch_a_buffer_in_turn_never_overlap(uses):
    """Steps that use a buffer which one of them changes are ordered; two additions are not."""
    found = follow(*(step(*map(tuple, each)) for each in uses))
    behind = []
    for after in found:
        behind.append(set(after).union(*(behind[number] for number in after)))
    for later, (reads, writes, adds) in enumerate(uses):
        for earlier, (read, written, added) in enumerate(uses[:later]):
            for buffer in (A, B):
                uses_it = buffer in (*read, *written, *added)
                changes = buffer in (*writes, *adds)
                changed = buffer in (*written, *added)
                both_add = (
                    buffer in adds
                    and buffer in added
                    and buffer not in (*reads, *writes, *read, *written)
                )
                waits = (changes and uses_it) or (buffer in reads and changed)
                if waits and not both_add:
                    assert earlier in behind[later]
