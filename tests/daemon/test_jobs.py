"""Recurring jobs, with real threads and clocks that jump."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from functools import partial

import pytest
import structlog
from apscheduler.schedulers import base

from fabled.daemon.jobs import RETRY_S, Jobs
from fabled.errors import DiskFull
from fabled.system import real
from tests.support.waiting import Heard, until

FOREVER = 86_400.0


def is_due_after(jobs, name, when_ms) -> bool:
    """Whether the job's next run is later than that."""
    return bool(row(jobs, name).next_run > when_ms)


def has_result(jobs, words) -> bool:
    """Whether the last run of job "a" left these words."""
    return bool(row(jobs).last_result == words)


def are_at_least(least, runs) -> bool:
    """Whether there were so many runs."""
    return bool(len(runs) >= least)


class JumpingClock:
    """The real clock, with a wall time that a test can set, for us and for APScheduler."""

    def __init__(self, monkeypatch) -> None:
        self.offset_ms = 0
        self._real = real().clock
        clock = self

        class Shifted(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + timedelta(milliseconds=clock.offset_ms)

        monkeypatch.setattr(base, "datetime", Shifted)

    def now_ms(self) -> int:
        return self._real.now_ms() + self.offset_ms

    def monotonic_s(self) -> float:
        return self._real.monotonic_s()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return self._real.wait(event, timeout_s)


@pytest.fixture
def jobs():
    """Jobs on the real clock, not started."""
    started = Jobs(real().clock, pulse_s=0.02)
    yield started
    started.stop(20)


def row(jobs, name="a"):
    """The row of one job."""
    return next(row for row in jobs.rows() if row.name == name)


def test_job_runs_again_and_again(jobs):
    """It runs at its interval, and its row tells the last run, its words and the next one."""
    heard = Heard()
    before = real().clock.now_ms()

    def run():
        heard()
        return "3 files"

    jobs.add("a", 0.05, run)
    assert row(jobs)[1:3] == (None, None)
    jobs.start()
    heard.wait(lambda runs: len(runs) >= 3)
    found = until(lambda: row(jobs) if row(jobs).last_run else None)
    assert found.last_result == "ok: 3 files"
    assert before <= found.last_run <= real().clock.now_ms()
    assert found.next_run > found.last_run
    assert found.failures == 0


def test_job_waits_for_its_first_time(jobs):
    """One interval by default, at once or later as asked."""
    heard = Heard()
    jobs.add("late", FOREVER, lambda: str(heard("late")))
    jobs.add("soon", FOREVER, lambda: str(heard("soon")), first_s=0)
    jobs.start()
    heard.wait_for("soon")
    now = real().clock.now_ms()
    assert heard.items == ["soon"]
    for name in ("late", "soon"):
        until(partial(is_due_after, jobs, name, now + (FOREVER - 60) * 1000))


def test_job_added_twice_is_refused(jobs):
    """Names are unique."""
    jobs.add("a", FOREVER, str)
    with pytest.raises(ValueError, match="'a'"):
        jobs.add("a", FOREVER, str)
    with pytest.raises(KeyError):
        jobs.run_now("b")


def test_failing_job_is_logged_and_tried_again(jobs):
    """The error's message is on record, the traceback in the log, and success clears it."""
    outcomes = [DiskFull("no room for the Map"), KeyError("secret")]

    def run():
        if outcomes:
            raise outcomes.pop(0)
        return "fine"

    found = []
    with structlog.testing.capture_logs() as logged:
        jobs.add("a", FOREVER, run)
        jobs.start()
        for words in ("no room for the Map", "internal error: KeyError", "ok: fine"):
            jobs.run_now("a")
            until(partial(has_result, jobs, words))
            found.append(row(jobs).failures)
    assert found == [1, 2, 0]
    assert [entry["job"] for entry in logged] == ["a", "a"]
    assert all(entry["exc_info"] for entry in logged)


def test_failing_job_runs_again_at_its_interval(jobs):
    """Nobody has to ask: the next time comes as if nothing had happened."""
    heard = Heard()

    def run():
        heard()
        raise DiskFull("still")

    jobs.add("a", 0.01, run)
    jobs.start()
    heard.wait(partial(are_at_least, 3))


def test_failing_job_is_tried_again_long_before_its_interval(jobs, monkeypatch):
    """With growing distance, so that a job of a day's interval does not miss a day."""
    monkeypatch.setattr("fabled.daemon.jobs.RETRY_S", 0.01)
    heard = Heard()

    def run():
        heard()
        raise DiskFull("still")

    jobs.add("a", FOREVER, run, first_s=0)
    jobs.start()
    heard.wait(partial(are_at_least, 4))


def test_distance_of_retries_grows_up_to_the_interval(jobs):
    """A first failure is tried again after the least distance; success returns to the interval."""
    outcomes = [DiskFull("one"), DiskFull("two"), None]
    due = []

    def run():
        if fault := outcomes.pop(0):
            raise fault
        return "fine"

    jobs.add("a", FOREVER, run)
    jobs.start()
    for words in ("one", "two", "ok: fine"):
        before = real().clock.now_ms()
        jobs.run_now("a")
        until(partial(has_result, jobs, words))
        due.append(row(jobs).next_run - before)
    assert 0 < due[0] - RETRY_S * 1000 < 15_000
    assert 0 < due[1] - 2 * RETRY_S * 1000 < 15_000
    assert due[2] > 10 * RETRY_S * 1000


def test_job_never_overlaps_itself_and_does_not_hold_up_others(jobs):
    """A run longer than its interval is alone; others go on; `rows` shows how long it runs."""
    leave, running, most = threading.Event(), [], []
    other = Heard()

    def long():
        running.append(1)
        most.append(len(running))
        leave.wait(20)
        running.pop()
        return "long"

    jobs.add("long", 0.01, long)
    jobs.add("other", 0.01, lambda: str(other()))
    jobs.start()
    until(lambda: running)
    other.wait(lambda runs: len(runs) >= 10)
    assert row(jobs, "long").running_s >= 0
    leave.set()
    until(lambda: len(most) >= 3)
    assert set(most) == {1}


def test_run_now_runs_at_once_and_keeps_the_interval(jobs):
    """A job that is due tomorrow runs now, once."""
    heard = Heard()
    jobs.add("a", FOREVER, lambda: str(heard()))
    jobs.start()
    jobs.run_now("a")
    heard.wait(bool)
    until(lambda: row(jobs).last_run is not None)
    until(lambda: row(jobs).next_run > real().clock.now_ms() + 1000 * (FOREVER - 60))
    assert len(heard.items) == 1


def test_run_now_during_a_run_runs_once_more_after_it(jobs):
    """However often it is asked meanwhile: exactly one more run, which begins after the asking."""
    began, leave = Heard(), threading.Event()

    def run():
        began()
        leave.wait(20)
        return ""

    jobs.add("a", FOREVER, run)
    jobs.start()
    jobs.run_now("a")
    began.wait(bool)
    for _ in range(5):
        jobs.run_now("a")
    now = real().clock.now_ms()
    until(partial(is_due_after, jobs, "a", now + (FOREVER - 60) * 1000))  # nothing else will run it
    leave.set()
    began.wait(lambda runs: len(runs) == 2)
    until(lambda: row(jobs).running_s is None)
    assert len(began.items) == 2


def test_run_now_right_after_a_run_is_not_lost(jobs, monkeypatch):
    """The scheduler still counts the run that ended; the request is served all the same."""
    heard, leave = Heard(), threading.Event()

    def run():
        heard()
        leave.wait(20)
        return ""

    jobs.add("a", FOREVER, run)
    jobs.start()
    executor = jobs._scheduler._executors["default"]
    book = executor._run_job_success

    def late(*args):  # the scheduler learns of the first run's end after the second began
        heard.wait(partial(are_at_least, 2), timeout=5)
        book(*args)

    monkeypatch.setattr(executor, "_run_job_success", late)
    now = real().clock.now_ms()
    jobs.run_now("a")
    heard.wait(bool)
    until(partial(is_due_after, jobs, "a", now + (FOREVER - 60) * 1000))
    leave.set()
    until(lambda: row(jobs).last_run is not None)
    jobs.run_now("a")
    heard.wait(partial(are_at_least, 2), timeout=4)


def test_clock_set_back_delays_a_job_by_one_interval_at_most(monkeypatch):
    """A year back: the job goes on at its pace."""
    clock = JumpingClock(monkeypatch)
    heard = Heard()
    jobs = Jobs(clock, pulse_s=0.02)
    jobs.add("a", 0.1, lambda: str(heard()))
    jobs.start()
    try:
        heard.wait(bool)
        clock.offset_ms = -365 * 86_400_000
        heard.clear()
        heard.wait(lambda runs: len(runs) >= 2)
    finally:
        jobs.stop(20)


def test_clock_set_forward_costs_one_run_of_each_job(monkeypatch):
    """After fifty years, as after a night asleep: each overdue job once, not once per interval."""
    clock = JumpingClock(monkeypatch)
    heard = Heard()
    jobs = Jobs(clock, pulse_s=0.02)
    for name in ("a", "b"):
        jobs.add(name, 30, partial(heard, name))
    jobs.start()
    try:
        until(lambda: all(row.next_run for row in jobs.rows()))
        clock.offset_ms = 50 * 365 * 86_400_000
        heard.wait(lambda runs: set(runs) == {"a", "b"}, timeout=10)
        until(lambda: all(is_due_after(jobs, n, clock.now_ms() + 20_000) for n in "ab"))
        assert sorted(heard.items) == ["a", "b"]
    finally:
        jobs.stop(20)


def test_stop_waits_for_a_run_and_begins_no_other(jobs):
    """The run that is under way ends; nothing starts after that."""
    began, leave = threading.Event(), threading.Event()
    runs = Heard()

    def run():
        began.set()
        leave.wait(20)
        runs()
        return "whole"

    jobs.add("a", 0.01, run, first_s=0)
    jobs.start()
    assert began.wait(20)
    threading.Timer(0.05, leave.set).start()
    assert jobs.stop(20) == []
    assert row(jobs)[2:5] == ("ok: whole", None, None)
    assert len(runs.items) == 1
    jobs.run_now("a")
    assert jobs.stop(0) == []


def test_stop_names_what_does_not_end_in_time(jobs):
    """It returns at its deadline with the name of the job that hangs."""
    began, leave = Heard(), threading.Event()
    jobs.add("a", FOREVER, lambda: f"{began()} {leave.wait(20)}", first_s=0)
    jobs.start()
    began.wait(bool)
    assert jobs.stop(0.02) == ["a"]
    leave.set()
    assert jobs.stop(20) == []


def test_stop_without_start_is_nothing(jobs):
    """A daemon that fails early stops what never began."""
    jobs.add("a", 1, str)
    assert jobs.stop(1) == []
