"""A real systemd of a user, in a mount namespace of its own; runs commands below it.

    unshare --mount --propagation private python -m tests.support.user_manager FOLDER

Needs root, unshare and systemd; nothing outside of FOLDER and the namespace is touched.
Reads commands as JSON lists on stdin, one a line, and answers {"status", "out", "err"}.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

SYSTEMD = "/lib/systemd/systemd"


def cannot():
    """Why there can be none here; None when there can."""
    if not Path(SYSTEMD).exists() or not shutil.which("systemctl"):
        return "needs systemd"
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return "needs root and unshare, for a mount namespace"
    script = "mount -t tmpfs t /run && mount -t cgroup2 none /sys/fs/cgroup"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, check=False)
    return None if done.returncode == 0 else "needs a cgroup2 file system that may be mounted"


class UserManager:
    """The manager, seen from outside."""

    def __init__(self, folder, environment):
        self._process = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private"),
                *(sys.executable, "-m", "tests.support.user_manager", str(folder)),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent.parent,
        )

    def run(self, *command):
        """Run a command below it: (status, stdout, stderr)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["status"], answer["out"], answer["err"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _serve(folder):
    mounts = (
        "mount -t tmpfs t /run && mkdir -p /run/systemd/system"
        " && mount -t cgroup2 none /sys/fs/cgroup"
    )
    subprocess.run(["sh", "-c", mounts], check=True)
    runtime = Path("/run/user")
    runtime.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    with (folder / "systemd.log").open("wb") as log:
        manager = subprocess.Popen([SYSTEMD, "--user"], stdout=log, stderr=log)
    while subprocess.run(
        ["systemctl", "--user", "is-system-running"], capture_output=True, check=False
    ).stdout.strip() not in {b"running", b"degraded"}:
        assert manager.poll() is None, (folder / "systemd.log").read_text()
        time.sleep(0.05)
    for line in sys.stdin:
        done = subprocess.run(json.loads(line), capture_output=True, text=True, check=False)
        answer = {"status": done.returncode, "out": done.stdout, "err": done.stderr}
        print(json.dumps(answer), flush=True)
    subprocess.run(["systemctl", "--user", "exit"], capture_output=True, check=False)
    manager.wait(30)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
