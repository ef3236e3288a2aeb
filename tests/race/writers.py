"""Processes that append to one file as clients do, never told about any pruner.

    writers.py PATH NUMBER STYLE SECONDS OUT

Styles: oac opens, appends and closes for each record (what the client was measured to do);
oacgap waits up to 20 ms between open and write; held keeps a descriptor for 50 records;
forever keeps it for the whole run. OUT gets how many records were acknowledged, and the
longest time one append took, in seconds.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

STYLES = ("oac", "oacgap", "held", "forever")
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def size_of(number):
    """A record's size follows from its number, so that lost bytes can be counted."""
    mixed = (number * 2654435761) & 0xFFFFFFFF
    return 60000 if mixed % 211 == 0 else 200 + mixed % 2800


def record(writer, number):
    """One line."""
    head = b'{"type":"user","a":%d,"n":%d,"p":"' % (writer, number)
    return head + b"x" * (size_of(number) - len(head) - 3) + b'"}\n'


def write(path, writer, style, seconds, out):
    """Append until the time is over."""
    rng, number, slow = random.Random(writer), 0, 0.0
    end = time.monotonic() + seconds
    fd, used = None, 0
    while time.monotonic() < end:
        began, gap = time.monotonic(), 0.0
        if fd is None:
            fd, used = os.open(path, _FLAGS, 0o600), 0
        if style == "oacgap":
            gap = rng.random() * 0.02
            time.sleep(gap)
        data = record(writer, number)
        while data:
            data = data[os.write(fd, data) :]
        number, used = number + 1, used + 1
        if style in ("oac", "oacgap"):
            os.close(fd)
            fd = None
        slow = max(slow, time.monotonic() - began - gap)
        if style == "held" and used >= 50 and fd is not None:
            os.close(fd)
            fd = None
            time.sleep(0.02)
        time.sleep(rng.random() * 0.0015)
    Path(out).write_text(json.dumps({"n": number, "slowest": slow}))


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5])
