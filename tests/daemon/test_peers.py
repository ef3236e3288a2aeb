"""Who is at the other end of a socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from fabled.daemon.peers import peer

DIAL = """
import os, socket, sys
if len(sys.argv) > 2: os.setuid(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()
"""


def dialled(listener, path, *user):
    """What the kernel says about a child that connects, and the child's pid."""
    with subprocess.Popen([sys.executable, "-c", DIAL, path, *user], stdin=subprocess.PIPE) as who:
        connection, _ = listener.accept()
        with connection:
            return peer(connection), who.pid


@pytest.fixture
def listener(tmp_path):
    """A socket that waits for one child."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(20)
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        yield listening


def test_peer_is_the_process_that_connected(listener, tmp_path):
    """User and process id are those of the other side, not ours."""
    found, pid = dialled(listener, str(tmp_path / "s"))
    assert found == (os.geteuid(), pid)
    assert pid != os.getpid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_peer_of_another_user_has_that_uid(listener, tmp_path):
    """A process that changed its user before it connected is seen as that user."""
    os.chmod(tmp_path / "s", 0o666)  # noqa: S103 - so that nobody may connect
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            os.chmod(folder, 0o755)  # noqa: S103 - pytest's own folders, so that nobody gets in
    found, pid = dialled(listener, str(tmp_path / "s"), "65534")
    assert found == (65534, pid)


def test_peer_of_a_listener_is_the_listener(listener, tmp_path):
    """Seen from a client, the peer is the process that listens."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        assert peer(client) == (os.geteuid(), os.getpid())


def test_peer_of_no_connection_is_unknown():
    """A socket without a peer names nobody that could be mistaken for us."""
    with socket.socket(socket.AF_INET) as unconnected:
        found = peer(unconnected)
    assert found is None or found.uid != os.geteuid()
