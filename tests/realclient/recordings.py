"""Sessions made by a real client for a test, larger than what the fixtures hold.

python -m tests.realclient.recordings VERSION FOLDER    makes one, for a look at it
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.realclient.running import RealClient

AT_ONCE = 6
LINES = 420


def compacted(client, turns=14):
    """Megabytes of tool results, a compaction, and a little more; the transcript's path.

    Each of `turns` prompts has six files of about 20 kB read, which the client keeps whole
    and twice: as the tool's result and as its structured copy.
    """
    folder = client.root / "home" / "proj"
    client.open()
    for turn in range(turns):
        names = [f"part-{turn}-{n}.txt" for n in range(AT_ONCE)]
        for name in names:
            text = "".join(f"{name} line {i:04d}, said once and kept\n" for i in range(LINES))
            (folder / name).write_text(text)
        reads = [
            {"name": "Read", "input": {"file_path": f"/home/dev/proj/{name}"}} for name in names
        ]
        steps = [{"text": f"Reading {turn}.", "tools": reads}, {"text": f"Read {turn}."}]
        client.say(f"Read the parts of {turn}.", steps)
    client.close_stream()
    client.resume("/compact")
    client.resume("What was it all about?", [{"text": "About parts."}])
    client.resume("And then?", [{"text": "Then we went on."}])
    return client.transcript


def main():
    """Make one."""
    version, out = sys.argv[1], Path(sys.argv[2])
    with RealClient(version, out / "client") as client:
        path = compacted(client)
        shutil.copytree(path.parent, out / "projects" / path.parent.name)
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
