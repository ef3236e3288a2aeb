"""What waits for the worker: nothing is lost, nobody is served by an older reading."""

from __future__ import annotations

from fabled.daemon.backlog import Backlog, Item
from fabled.daemon.desk import Desk
from fabled.daemon.tickets import Done, Ticket
from fabled.errors import DiskFull


def item(path, asked, **more):
    """A path below the root /r."""
    return Item("/r", path, 10, 0.0, asked, **more)


def done(path, asked):
    """The same path, read."""
    return Done(path, asked, 10, 1, None)


def test_path_in_hand_is_pending_until_it_is_done():
    """`status` must not say idle while the last transcript is being written."""
    backlog = Backlog()
    backlog.add(item("/r/a", 1), live=True)
    assert backlog.take() is not None
    assert backlog.pending(0.0).files == 1
    backlog.put_down()
    assert backlog.pending(0.0).files == 0


def test_ticket_is_not_served_by_a_reading_that_began_before_it():
    """A waiter's request is numbered; only a reading after it counts."""
    ticket = Ticket()
    ticket.begin({"/r/a": 5})
    ticket.handled(done("/r/a", 4))
    assert not ticket.over
    ticket.handled(done("/r/a", 5))
    assert ticket.over
    assert (ticket.files, ticket.bytes) == (1, 10)


def test_older_reading_does_not_take_a_newer_request_along():
    """A path asked for again while somebody reads it is read again."""
    backlog = Backlog()
    backlog.add(item("/r/a", 7), live=False)
    backlog.discard_done("/r/a", 6)
    assert backlog.paths() == {"/r/a": 7}
    backlog.discard_done("/r/a", 7)
    assert backlog.paths() == {}


def test_live_path_is_taken_before_the_rest_and_never_demoted():
    """What changes now comes first, also when a survey finds it as well."""
    backlog = Backlog()
    backlog.add(item("/r/old", 1), live=False)
    backlog.add(item("/r/live", 2), live=True)
    backlog.add(item("/r/live", 3, afresh=True), live=False)
    first = backlog.take()
    assert first is not None
    assert (first.path, first.asked, first.afresh) == ("/r/live", 3, True)


def test_stalled_desk_keeps_its_work_and_tells_who_waits():
    """A full disk: waiters get the error, the path is read once the pause is over."""
    now = [0.0]
    desk = Desk(["/r"], lambda: now[0])
    ticket = desk.ask_survey()
    desk.mark("/r/-p/a.jsonl")
    taken = desk.take()
    assert taken is not None
    desk.surveyed([], desk.asked().surveys)
    desk.put_back(taken)
    desk.surveyed([], [waiting := Ticket()])
    desk.stall(5.0, DiskFull("no room"))
    assert ticket.over
    assert waiting.error is not None
    assert desk.take() is None
    assert desk.work().warnings == ("no room",)
    now[0] = 6.0
    assert desk.take() == taken
    desk.resume()
    assert desk.work().warnings == ()


def test_path_outside_every_root_is_nobodys_business():
    """Hints about other places are dropped at the door."""
    desk = Desk(["/r"], lambda: 0.0)
    desk.mark("/elsewhere/a.jsonl")
    desk.mark("/rx/a.jsonl")
    assert desk.take() is None


def test_new_map_carries_waiters_over_to_its_first_survey():
    """Whoever waited for a pass when the Map was replaced waits for the new one's."""
    desk = Desk(["/r"], lambda: 0.0)
    desk.mark("/r/-p/a.jsonl")
    desk.surveyed([], [ticket := Ticket()])
    assert not ticket.over
    desk.start_over([])
    assert desk.take() is None
    desk.surveyed([], desk.asked().surveys)
    assert ticket.over
