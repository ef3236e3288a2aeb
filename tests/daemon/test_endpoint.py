"""The socket's place: taken, recovered, refused and given back."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys

import pytest

from fabled.daemon import endpoint
from fabled.daemon.endpoint import bind, unbind
from fabled.errors import AccessDenied, AlreadyRunning, SocketPathTaken, SocketPathTooLong
from fabled.system import real

FILES = real().files


def mode(path) -> int:
    """Permission bits of what is there."""
    return stat.S_IMODE(os.lstat(path).st_mode)


def stale_socket(path) -> None:
    """A socket file whose process is gone."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_bind_makes_a_private_socket_in_a_private_folder(tmp_path):
    """Folder 0700, socket 0600 whatever the umask, and clients can connect at once."""
    before = os.umask(0)
    try:
        ours = bind(str(tmp_path / "run/x/s"), FILES)
    finally:
        os.umask(before)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(ours.path)
    assert [mode(tmp_path / p) for p in ("run", "run/x", "run/x/s")] == [0o700, 0o700, 0o600]
    assert unbind(ours, FILES)
    assert os.listdir(tmp_path / "run/x") == []


def test_bind_recovers_the_socket_of_a_killed_process(tmp_path):
    """After SIGKILL the next bind succeeds without help."""
    path = str(tmp_path / "s")
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen();"
        "print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        with pytest.raises(AlreadyRunning, match=f"process {holder.pid} listens on"):
            bind(path, FILES)
        assert os.path.exists(path)
        holder.kill()
    unbind(bind(path, FILES), FILES)


def test_bind_leaves_a_live_socket_alone_even_if_it_never_accepts(tmp_path, monkeypatch):
    """A stopped daemon with a full queue is alive: refused, its socket untouched."""
    path = str(tmp_path / "s")
    monkeypatch.setattr(endpoint, "_PROBE_S", 0.05)
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        waiting = []
        for _ in range(3):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            client.connect_ex(path)
            waiting.append(client)
        before = os.lstat(path).st_ino
        with pytest.raises(AlreadyRunning):
            bind(path, FILES)
        assert os.lstat(path).st_ino == before
        for client in waiting:
            client.close()


@pytest.mark.parametrize("kind", ["file", "folder", "link", "pipe"])
def test_bind_refuses_what_is_not_a_socket(tmp_path, kind):
    """Whatever stands there stays there."""
    path = tmp_path / "s"
    {
        "file": lambda: path.write_bytes(b"precious"),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to("elsewhere"),
        "pipe": lambda: os.mkfifo(path),
    }[kind]()
    before = os.lstat(path)
    with pytest.raises(SocketPathTaken, match="not a socket"):
        bind(str(path), FILES)
    assert os.lstat(path).st_ino == before.st_ino


def test_bind_refuses_a_socket_of_another_type(tmp_path):
    """A datagram socket is somebody else's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "s"))
        with pytest.raises(SocketPathTaken, match="another type"):
            bind(str(tmp_path / "s"), FILES)
    assert (tmp_path / "s").exists()


def test_bind_names_the_limit_of_a_path_too_long(tmp_path):
    """One byte too many is refused with length and limit, before anything is made."""
    limit = 107 if sys.platform == "linux" else 103
    folder = str(tmp_path / "f")
    fits = os.path.join(folder, "s" * (limit - len(folder) - 1))
    with pytest.raises(SocketPathTooLong, match=rf"{limit + 1} bytes long.*allows {limit}"):
        bind(fits + "s", FILES)
    assert not os.path.exists(folder)
    unbind(bind(fits, FILES), FILES)


def test_bind_tightens_a_folder_of_its_own_only(tmp_path):
    """A folder that holds the socket alone is closed; one with other things keeps its mode."""
    for name in ("own", "shared", "sticky"):
        (tmp_path / name).mkdir()
    (tmp_path / "shared/other").write_bytes(b"")
    stale_socket(tmp_path / "own/s")
    for name, given in (("own", 0o755), ("shared", 0o755), ("sticky", 0o1777)):
        os.chmod(tmp_path / name, given)
        unbind(bind(str(tmp_path / name / "s"), FILES), FILES)
    assert [mode(tmp_path / n) for n in ("own", "shared", "sticky")] == [0o700, 0o755, 0o1777]


def test_bind_refuses_a_folder_where_others_could_swap_the_socket(tmp_path):
    """Writable by others, and not ours to close: refused with a way out."""
    (tmp_path / "other").write_bytes(b"")
    os.chmod(tmp_path, 0o777)  # noqa: S103 - the condition under test
    try:
        with pytest.raises(AccessDenied, match="other users can write") as caught:
            bind(str(tmp_path / "s"), FILES)
    finally:
        os.chmod(tmp_path, 0o700)
    assert "FABLED_SOCKET" in caught.value.hint


def test_unbind_leaves_a_successors_socket(tmp_path):
    """If another daemon took the path meanwhile, its socket stays."""
    path = str(tmp_path / "s")
    first = bind(path, FILES)
    os.rename(path, path + ".old")
    second = bind(path, FILES)
    assert not unbind(first, FILES)
    assert unbind(second, FILES)
    assert not unbind(second, FILES)
