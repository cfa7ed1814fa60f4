"""A run on a SuperLink is followed by the files that its ServerApp writes."""

from concurrent.futures import Executor, Future

import pytest

import agewise as aw
from agewise.federation.flower import publication, submission
from agewise.federation.flower.publication import (
    RESULT,
    STEPS,
    Publication,
    Published,
    Publisher,
    folder_in,
)
from agewise.federation.flower.submission import OUTAGE, QUIET, Submission
from agewise.testing import Clock
from deployments import elsewhere, init_deployment
from parties import Step

UPLOADED = Step(1, "client 1", "uploaded")


class Flower:
    """A SuperLink on which a script takes place, one act a question; it notes what it was asked."""

    def __init__(self, *acts):
        self.acts, self.asked = list(acts), []

    def __call__(self, _, *arguments):
        self.asked.append(arguments[0])
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        status = act() if callable(act) else act
        return {"runs": [{"status": status}]} if status else {"success": False}


class AtOnce(Executor):
    """Does what it is given before it says anything else."""

    def __init__(self, _):
        pass

    def submit(self, work):
        done = Future()
        done.set_result(work())
        return done


@pytest.fixture
def follow(tmp_path, monkeypatch):
    """Follows run 7 of a SuperLink elsewhere."""
    monkeypatch.setattr(submission, "time", Clock())
    monkeypatch.setattr(submission, "ThreadPoolExecutor", AtOnce)
    made, told = elsewhere(tmp_path / "there", "127.0.0.1:9"), []

    def begin(flower, watch=lambda step, *_: None):
        monkeypatch.setattr(submission, "ask_flower", flower)

        def watching(*step):
            told.append(step)
            watch(*step)

        return Submission(made, "7", "run", watching)

    begin.told = told
    begin.folder = folder_in(made.folder / "flwr", 7)
    return begin


def test_steps_are_told_while_the_run_goes_on(follow):
    seen = []

    def begins():
        publisher.append(Publisher(follow.folder))
        publisher[0].step(UPLOADED, 0, 10)
        return "running"

    def ends():
        seen.extend(follow.told)
        publisher[0].result(Published("run", [], model=1.5))
        return "running"

    publisher = []
    assert follow(Flower("pending", begins, ends)).wait().model == 1.5
    assert seen == [(UPLOADED, 0, 10)]


def test_flower_is_not_asked_while_steps_are_published(follow, monkeypatch):
    """Each question starts a process; a run that goes on says so itself."""
    publisher, flower = Publisher(follow.folder), Flower("running", "finished:failed")
    clock, left = submission.time, [1] * 20
    begun = clock.time()

    def sleep(seconds):
        clock.shown += seconds
        if left and clock.shown >= begun + (21 - len(left)) * (QUIET - 1):
            assert not flower.asked
            publisher.step(UPLOADED, 0, 10)
            left.pop()

    monkeypatch.setattr(clock, "sleep", sleep)
    with pytest.raises(aw.RunIncomplete, match="where the ServerApp ran"):
        follow(flower).wait()
    assert flower.asked == ["ls", "ls"]
    assert not left


def test_an_interrupted_run_is_stopped(follow):
    Publisher(follow.folder).step(UPLOADED, 0, 10)

    def interrupt(*_):
        raise KeyboardInterrupt

    flower = Flower("running")
    with pytest.raises(KeyboardInterrupt):
        follow(flower, interrupt).wait()
    assert flower.asked[-1] == "stop"


def test_a_superlink_may_be_away_for_a_while(follow):
    def returns():
        Publisher(follow.folder).result(Published("run", [], model=2.0))
        return "finished:completed"

    assert follow(Flower("running", "", "", returns)).wait().model == 2.0
    assert [step.what for step, *_ in follow.told] == ["outage"]


def test_a_superlink_that_stays_away_is_named(follow):
    with pytest.raises(aw.RunIncomplete, match=rf"no SuperLink at 127.0.0.1:9 for {OUTAGE:.0f} s"):
        follow(Flower("running", "")).wait()


def test_a_run_elsewhere_says_where_its_result_is(follow):
    with pytest.raises(aw.RunIncomplete, match=r"agewise/7 of Flower's home.*FLWR_HOME") as told:
        follow(Flower("running", "finished:completed")).wait()
    assert f"Copy that folder to {follow.folder}" in str(told.value)


def test_a_failed_run_of_a_deployment_here_names_its_logs(tmp_path, monkeypatch):
    made = init_deployment(tmp_path / "fed", aw.scenarios.london(), tls=False)
    monkeypatch.setattr(submission, "ask_flower", Flower("finished:failed"))
    with pytest.raises(aw.RunIncomplete, match=f"without a result. See {made.folder / 'logs'}"):
        Submission(made, "7", "run", lambda *_: None).wait()


def test_a_step_that_is_still_being_written_is_waited_for(tmp_path):
    Publisher(tmp_path).step(UPLOADED, 0, 10)
    line = (tmp_path / STEPS).read_bytes()
    (tmp_path / STEPS).write_bytes(line + line[:9])
    found = Publication(tmp_path, "run")
    assert list(found.steps()) == [(UPLOADED, 0, 10)]
    (tmp_path / STEPS).write_bytes(line + line)
    assert list(found.steps()) == [(UPLOADED, 0, 10)]
    assert not list(found.steps())


def test_files_of_any_length_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(publication, "LARGEST_RESULT", 100)
    monkeypatch.setattr(publication, "LONGEST_STEP", 100)
    (tmp_path / STEPS).write_bytes(b"x" * 101)
    (tmp_path / RESULT).write_bytes(b"x" * 101)
    found = Publication(tmp_path, "run")
    with pytest.raises(aw.RunIncomplete, match="a line of over 100 bytes"):
        list(found.steps())
    with pytest.raises(aw.RunIncomplete, match="over 100 bytes"):
        found.result()
