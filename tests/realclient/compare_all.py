"""Resume many transcripts in one real client and compare what reaches the API.

    compare_all.py REALCLIENT_FOLDER CLIENT RESULTS < pairs.json

`pairs` is a list of [original, other, ...]: paths of transcripts with the same session id in
their names. RESULTS gets a list of {"original", "other", "problems", "identical", "same_system",
"notes", "words", "words_before", "api", "api_before"}; `problems` is null when the original
itself does not resume, `words` are both sides' texts in the order in which they were sent,
`api` is what the real API would refuse. One process for all, because each one makes
namespaces of its own (see run_session.ensure_netns).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path


def main():
    """Compare everything asked for on standard input."""
    folder, client, out = sys.argv[1:]
    sys.path.insert(0, folder)
    os.environ["REALCLIENT_BIN"] = client
    oracle = importlib.import_module("compare_resume")
    oracle.run_session.ensure_netns()
    results = []
    for original, *others in json.load(sys.stdin):
        first = oracle.resume(original, client)
        for other in others:
            second = first if other == original else oracle.resume(other, client)
            results.append({"original": original, "other": other, **said(oracle, first, second)})
            print(f"{other}: {results[-1]['problems'] or 'ok'}", file=sys.stderr, flush=True)
    Path(out).write_text(json.dumps(results), encoding="utf-8")


def said(oracle, first, second):
    """What there is to say about one resumed transcript beside its original."""
    problems, notes = compare(oracle, first, second)
    return {
        "problems": problems,
        "identical": bool(first["messages"]) and first["messages"] == second["messages"],
        "same_system": first["system"] == second["system"],
        "notes": notes,
        "words": words(oracle, second),
        "words_before": words(oracle, first),
        "api": oracle.api_problems(second["messages"] or []),
        "api_before": oracle.api_problems(first["messages"] or []),
    }


def words(oracle, resumed):
    """The texts of both sides, in the order in which they were sent."""
    found = oracle.normalise(resumed["messages"] or [])
    return [key for kind, key, _ in found if kind in {"user", "assistant"}]


def compare(oracle, first, second):
    """What `compare_resume.compare` says, without resuming either again."""
    answers = iter([first, second])
    resume, oracle.resume = oracle.resume, lambda *_: next(answers)
    try:
        problems, notes, _ = oracle.compare("original", "other")
    finally:
        oracle.resume = resume
    return problems, notes


if __name__ == "__main__":
    main()
