"""Recurring work: once at a time, never skipped, with its last result on record.

APScheduler runs the jobs; it reckons in wall-clock time, so three things are added. A
trigger that counts from now, so that a clock set forward by years costs one run. A
pulse on the monotonic clock, so that neither a clock set back nor a suspend keeps a
job waiting for longer than its interval and one pulse. And a request that arrives
while its job runs is kept, because that run may have passed the place it is about.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from fabled.errors import FabledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fabled.system import Clock

PULSE_S = 15.0
RETRY_S = 20.0
"""After a first failure; doubled for each one more, up to the job's interval."""
_log = structlog.get_logger(__name__)


class JobRow(NamedTuple):
    """One job as `status` shows it; times are milliseconds of UTC.

    Attributes:
        last_run: When the last run that ended began; None before.
        last_result: "ok: ..." or the error's message; None before.
        next_run: When it is due; None when stopped.
        running_s: How long it has been running; None while it is not.
        failures: How many runs failed in a row.
    """

    name: str
    last_run: int | None
    last_result: str | None
    next_run: int | None
    running_s: float | None
    failures: int


@dataclass(slots=True)
class _Job:
    name: str
    seconds: float
    run: Callable[[], str]
    last_run: int | None = None
    last_result: str | None = None
    began: float | None = None
    again: bool = False
    failures: int = 0


class _FromNow(BaseTrigger):  # type: ignore[misc]  # APScheduler ships no types
    """Due one interval after now, however long ago the last run was."""

    def __init__(self, seconds: float) -> None:
        self._interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime:
        return now + self._interval


class Jobs:
    """Runs each added job at its interval, in threads, from `start` to `stop`."""

    def __init__(self, clock: Clock, *, pulse_s: float = PULSE_S) -> None:
        self._clock = clock
        self._pulse_s = pulse_s
        self._jobs: dict[str, _Job] = {}
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._pulse: threading.Thread | None = None
        # Two instances, of which `_run` lets one work: APScheduler counts a run as running for a
        # moment after it ended, and would drop a request that comes in that moment.
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": None},
        )

    def add(
        self, name: str, seconds: float, run: Callable[[], str], *, first_s: float | None = None
    ) -> None:
        """Add a job, before or after `start`.

        Args:
            name: Unique.
            seconds: Between the beginnings of two runs; a longer run delays the next one.
            run: Does one run and says in a few words what it did. May raise: the error is
                logged, and the job runs again sooner: `RETRY_S` later, then with growing
                distance.
            first_s: From now to the first run; one interval when omitted.

        Raises:
            ValueError: There is a job of that name.
        """
        with self._changed:
            if name in self._jobs:
                raise ValueError(f"there is a job {name!r} already")
            self._jobs[name] = _Job(name, seconds, run)
        delay = timedelta(seconds=seconds if first_s is None else first_s)
        self._scheduler.add_job(
            self._run,
            _FromNow(seconds),
            args=(self._jobs[name],),
            id=name,
            next_run_time=self._now() + delay,
        )

    def start(self) -> None:
        """Begin to run jobs; a second call is an error."""
        self._scheduler.start()
        self._pulse = threading.Thread(target=self._beat, name="jobs-pulse", daemon=True)
        self._pulse.start()

    def stop(self, timeout_s: float) -> list[str]:
        """Begin no more runs, wait for those that run, and name the ones that still do.

        A run is not interrupted: give its function a way to end early.
        """
        self._ending.set()
        if self._pulse is not None:
            self._pulse.join()
            self._scheduler.shutdown(wait=False)
            self._pulse = None
        until = self._clock.monotonic_s() + timeout_s
        with self._changed:
            while running := [job.name for job in self._jobs.values() if job.began is not None]:
                left = until - self._clock.monotonic_s()
                if left <= 0 or not self._changed.wait(left):
                    break
        return running

    def run_now(self, name: str) -> None:
        """Run this job as soon as possible; once more after the present run, if it runs.

        Raises:
            KeyError: There is no such job.
        """
        with self._changed:
            job = self._jobs[name]
            job.again = job.began is not None
            if not job.again and not self._ending.is_set():
                self._move(name, self._now())

    def _move(self, name: str, due: datetime) -> None:
        with contextlib.suppress(JobLookupError):  # stopped meanwhile
            self._scheduler.modify_job(name, next_run_time=due)

    def rows(self) -> list[JobRow]:
        """The state of every job, in the order of adding."""
        with self._changed:
            return [self._row(job) for job in self._jobs.values()]

    def _row(self, job: _Job) -> JobRow:
        due = None if self._ending.is_set() else self._scheduler.get_job(job.name)
        return JobRow(
            job.name,
            job.last_run,
            job.last_result,
            None if due is None else int(due.next_run_time.timestamp() * 1000),
            None if job.began is None else self._clock.monotonic_s() - job.began,
            job.failures,
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC)

    def _run(self, job: _Job) -> None:
        again = True
        while again:
            with self._changed:
                if self._ending.is_set() or job.began is not None:
                    return
                job.began = self._clock.monotonic_s()
                began_ms = self._clock.now_ms()
            result, failed = _outcome(job)
            with self._changed:
                job.last_run, job.last_result, job.began = began_ms, result, None
                job.failures = job.failures + 1 if failed else 0
                again, job.again = job.again, False
                self._changed.notify_all()
                retry_s = RETRY_S * 2 ** min(job.failures - 1, 30)
                if failed and not again and retry_s < job.seconds:
                    self._move(job.name, self._now() + timedelta(seconds=retry_s))

    def _beat(self) -> None:
        while not self._clock.wait(self._ending, self._pulse_s):
            now = self._now()
            for job in list(self._jobs.values()):
                latest = now + timedelta(seconds=job.seconds)
                due: Any = self._scheduler.get_job(job.name)
                if due.next_run_time > latest:  # the clock was set back
                    self._move(job.name, latest)
            self._scheduler.wakeup()  # its own wait does not count time asleep


def _outcome(job: _Job) -> tuple[str, bool]:
    """Run the job once: what to record, and whether it failed."""
    try:
        return f"ok: {job.run()}", False
    except FabledError as fault:
        _log.exception("a job failed", job=job.name, code=fault.code)
        return fault.message, True
    except Exception as fault:  # noqa: BLE001 - a job must not end the others; the log has the traceback
        _log.exception("a job failed", job=job.name)
        return f"internal error: {type(fault).__name__}", True
