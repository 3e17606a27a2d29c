"""Parts of a job that was stopped: used again, damaged ones made again, and gone at the end."""

import pytest

from gnnbench.host import resume
from gnnbench.host.resume import KEPT_JOBS, keeping, once, recall


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "stopped" / "job"


class Maker:
    def __init__(self):
        self.made = []

    def make(self, name):
        self.made.append(name)
        if name == "cut":
            raise KeyboardInterrupt
        return {"name": name}


def make_all(folder, maker, names, again):
    with keeping(folder, again=again):
        for name in names:
            once(lambda name=name: maker.make(name), name)


def stop(folder, maker, *names, again=False):
    with pytest.raises(KeyboardInterrupt):
        make_all(folder, maker, (*names, "cut"), again)


def test_finished_parts_are_not_made_again_and_the_cut_one_is(folder):
    maker = Maker()
    stop(folder, maker, "one", "two")
    stop(folder, maker, "one", "two", "three", again=True)
    assert maker.made == ["one", "two", "cut", "three", "cut"]
    with keeping(folder, again=True) as keeper:
        assert keeper.count == 3
        assert recall("two") == {"name": "two"}
        assert recall("cut") is None
    assert not folder.exists()


def test_a_job_that_begins_anew_uses_nothing(folder):
    stop(folder, Maker(), "one")
    with keeping(folder, again=False):
        assert recall("one") is None


def test_a_damaged_part_is_made_again(folder):
    maker = Maker()
    stop(folder, maker, "one")
    (part,) = folder.iterdir()
    part.write_bytes(part.read_bytes()[:-3])
    with keeping(folder, again=True):
        once(lambda: maker.make("one"), "one")
    assert maker.made == ["one", "cut", "one"]


def test_what_is_made_inside_a_part_is_not_kept_for_itself(folder):
    with keeping(folder, again=False) as keeper:
        once(lambda: once(lambda: "inner", "inner"), "outer")
        assert (recall("inner"), recall("outer"), keeper.count) == (None, "inner", 1)


def test_a_job_that_did_not_come_to_its_end_keeps_its_parts(folder):
    with keeping(folder, again=False):
        once(lambda: 1, "one")
        resume.stop()
    assert folder.exists()


def test_what_cannot_be_kept_is_no_error(folder):
    folder.parent.mkdir()
    folder.write_text("in the way")
    with keeping(folder, again=False):
        assert once(lambda: lambda: 7, "a function")() == 7
        assert recall("a function") is None


def test_old_jobs_make_room(folder):
    for number in range(KEPT_JOBS + 3):
        stop(folder.with_name(str(number)), Maker(), "one")
    assert len(list(folder.parent.iterdir())) == KEPT_JOBS
    assert folder.with_name(str(KEPT_JOBS + 2)).exists()
