"""Starting, configuring, watching over and stopping the daemon, as its user does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat

import pytest

from fabled import __version__
from tests.conftest import ROOT
from tests.support.daemons import Daemon
from tests.support.transcripts import prompt
from tests.support.waiting import until

ODDITIES = ROOT / "tests" / "data" / "oddities" / "-derived-oddities"


@pytest.fixture
def root(tmp_path):
    """A projects folder with one session."""
    folder = tmp_path / "projects"
    (folder / "-p").mkdir(parents=True)
    (folder / "-p" / "s1.jsonl").write_bytes(prompt("p1", text="the first words"))
    return folder


def configured(tmp_path, text):
    """A configuration file."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    return {"FABLED_CONFIG": str(path)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[prune]\nlevle = 1\n", "unknown key prune.levle = 1"),
        ('[index]\nredact = "yes"\n', "index.redact = 'yes': allowed is true or false"),
        ("[archive]\nquiet = -1\n", "archive.quiet = -1: allowed is a number of seconds"),
        ('projects = "x"\n', "projects = 'x': allowed is a list"),
        ("not toml", "is not valid TOML"),
    ],
)
def test_wrong_configuration_is_named_and_refused(tmp_path, root, text, complaint):
    """File, key, value and what is allowed: in the daemon's and the client's words; exit 7."""
    wrong = configured(tmp_path, text)
    daemon = Daemon(tmp_path / "daemon", root, wait=False, **wrong)
    assert daemon.process.wait(30) == 7
    said = daemon.log.read_text()
    assert complaint in said
    assert wrong["FABLED_CONFIG"] in said
    checked = daemon.client("config", "check")
    assert checked.returncode == 7
    assert complaint in checked.stderr.decode()


def test_socket_path_too_long_is_refused_with_the_limit(tmp_path, root):
    """A path that the platform cannot bind is said to be one, before anything else; exit 7."""
    long = str(tmp_path / ("x" * 120) / "s")
    daemon = Daemon(tmp_path / "daemon", root, wait=False, FABLED_SOCKET=long)
    assert daemon.process.wait(30) == 7
    assert "bytes long; this platform allows" in daemon.log.read_text()


def test_reload_of_a_wrong_configuration_keeps_the_old_one(tmp_path, root):
    """SIGHUP reads the file again; a mistake is a warning in `status` and changes nothing."""
    right = configured(tmp_path, "[index]\nreconcile = 50\n")
    with Daemon(tmp_path / "daemon", root, **right) as daemon:
        daemon.idle()
        configured(tmp_path, "[index]\nreconcile = 'soon'\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: any("not reloaded" in text for text in daemon.status()["warnings"]))
        configured(tmp_path, "[index]\nreconcile = 50\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: daemon.status()["warnings"] == [])
        assert daemon.search("first")["results"]


def test_status_answers_during_the_first_pass(tmp_path, root):
    """From the first moment: state, progress in bytes, and what is pending."""
    for number in range(14):
        shutil.copytree(ODDITIES, root / f"-copy{number}")
    with Daemon(tmp_path / "daemon", root) as daemon:
        seen = until(lambda: (s := daemon.status())["progress"] and s)
        assert seen["state"] == "indexing"
        assert seen["pending"]["files"] > 0
        assert 0 <= seen["progress"]["done_bytes"] <= seen["progress"]["total_bytes"]
        done = daemon.idle()
        assert done["progress"] is None
        assert done["pending"] == {"files": 0, "bytes": 0, "lag_s": 0.0}
        assert done["version"] == __version__
        assert done["rss_bytes"] > 1 << 20


def test_stop_during_the_first_pass_is_quick_and_clean(tmp_path, root):
    """SIGTERM while a child reads: it ends with the daemon, and the next start goes on."""
    for number in range(14):
        shutil.copytree(ODDITIES, root / f"-copy{number}")
    daemon = Daemon(tmp_path / "daemon", root)
    child = until(lambda: daemon.status()["backfill_pid"])
    assert daemon.stop() == 0
    assert not os.path.exists(f"/proc/{child}")
    assert not os.path.exists(daemon.socket)
    with Daemon(tmp_path / "daemon", root) as again:
        assert again.index()["step"] == "done"


def test_folder_that_appears_while_a_child_reads_is_found(tmp_path, root):
    """What comes during a backfill is read with it, not a minute later."""
    for number in range(14):
        shutil.copytree(ODDITIES, root / f"-copy{number}")
    with Daemon(tmp_path / "daemon", root) as daemon:
        until(lambda: daemon.status()["backfill_pid"])
        late = root / "-late" / "s7" / "subagents"
        late.mkdir(parents=True)
        (late / "agent-z.jsonl").write_bytes(prompt("z1", text="latecomer", isSidechain=True))
        until(lambda: daemon.search("latecomer")["results"], 40)
        assert daemon.status()["jobs"][0]["last_run"] is None


def test_everything_it_makes_is_private(tmp_path, root):
    """No file or folder of the home can be read by anybody else, whatever the umask."""
    before = os.umask(0)
    try:
        with Daemon(tmp_path / "daemon", root) as daemon:
            daemon.idle()
            found = [daemon.home, *daemon.home.rglob("*")]
            assert len(found) > 5
            open_to_others = [p for p in found if stat.S_IMODE(p.lstat().st_mode) & 0o077]
            assert open_to_others == []
    finally:
        os.umask(before)


def test_transcripts_and_their_folders_are_never_changed(tmp_path, root):
    """Bytes, times and names below the root are the same after a full life of the daemon."""
    shutil.copytree(ODDITIES, root / "-odd")

    def state():
        return {
            str(path): (
                path.stat().st_mtime_ns,
                path.stat().st_ino,
                path.is_file() and path.read_bytes(),
            )
            for path in sorted(root.rglob("*"))
        }

    before = state()
    with Daemon(tmp_path / "daemon", root) as daemon:
        daemon.index()
        daemon.index(rebuild=1)
        daemon.search("first")
        daemon.json("/v1/sessions")
    assert state() == before


def test_log_has_no_words_of_a_transcript(tmp_path, root):
    """The log names paths and counts, never what was said."""
    with Daemon(tmp_path / "daemon", root, options=["--log-level", "debug"]) as daemon:
        daemon.idle()
        daemon.search("first words")
    said = daemon.log.read_text()
    assert "first words" not in said
    assert all(json.loads(line)["event"] for line in said.splitlines() if line.startswith("{"))
