"""Resume many transcripts in one real client and compare what reaches the API.

    compare_all.py REALCLIENT_FOLDER CLIENT < pairs.json > results.json

`pairs` is a list of [original, other, ...]: paths of transcripts with the same session id.
Each result is {"original", "other", "problems", "identical", "notes"}; problems is null when
the original itself does not resume. One process, because each one makes its own network
namespace (see run_session.ensure_netns).
"""

from __future__ import annotations

import json
import os
import sys


def main():
    """Compare everything asked for on standard input."""
    folder, client = sys.argv[1], sys.argv[2]
    sys.path.insert(0, folder)
    os.environ["REALCLIENT_BIN"] = client
    import compare_resume as oracle  # noqa: PLC0415 - found by the line above
    import run_session  # noqa: PLC0415

    run_session.ensure_netns()
    results = []
    for original, *others in json.load(sys.stdin):
        first = oracle.resume(original, client)
        for other in others:
            problems, notes, identical = compare(oracle, first, oracle.resume(other, client))
            results.append(
                {
                    "original": original,
                    "other": other,
                    "problems": problems,
                    "identical": identical,
                    "notes": notes,
                }
            )
            print(f"{other}: {problems or 'ok'} {identical}", file=sys.stderr, flush=True)
    json.dump(results, sys.stdout)


def compare(oracle, first, second):
    """What `compare_resume.compare` says, without resuming the original again."""
    answers = iter([first, second])
    resume, oracle.resume = oracle.resume, lambda *_: next(answers)
    try:
        problems, notes, _ = oracle.compare("original", "other")
    finally:
        oracle.resume = resume
    return problems, notes, first["messages"] == second["messages"]


if __name__ == "__main__":
    main()
