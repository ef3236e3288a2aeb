"""What a prune takes out and what it never touches, on records like the client's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabled.prune.check import problems
from fabled.prune.image import pieces
from fabled.prune.plan import forbidden, plan
from fabled.prune.rules import BY_NAME, RULES
from fabled.prune.values import Decline, Plan
from fabled.transcript.sentinel import wrap
from tests.support.maps import KEY
from tests.support.pruning import Bytes, options
from tests.support.transcripts import line, prompt, record, reply, tool_call, tool_result, uid


def pruned(data, **wanted):
    """The new image and the plan; the independent check has to agree."""
    chosen = options(**wanted)
    decided = plan(Bytes(data), len(data), "s1", chosen)
    assert isinstance(decided, Plan), decided
    image = b"".join(pieces(Bytes(data), decided))
    assert len(image) == decided.after_bytes
    found = problems(Bytes(data), len(data), Bytes(image), len(image), "s1", chosen)
    assert found == []
    return image, decided


def declined(data, **wanted):
    """The reason for leaving it alone."""
    decided = plan(Bytes(data), len(data), "s1", options(**wanted))
    assert isinstance(decided, Decline), decided
    return decided.reason


def turn(number, size=2000, parent=None):
    """A prompt, a call, its result and an answer."""
    ask, call, result, answer = (f"{part}{number}" for part in "pcra")
    return (
        prompt(ask, parent, f"prompt {number}")
        + tool_call(call, ask, f"toolu_{number}", "ls")
        + tool_result(result, call, f"toolu_{number}", "o" * size)
        + reply(answer, result, f"answer {number}")
    )


def talk(count, size=2000):
    """Turns, each below the one before."""
    return b"".join(turn(n, size, f"a{n - 1}" if n else None) for n in range(count))


def test_every_rule_says_what_why_and_on_what_evidence():
    """The table is complete, and each name is unique."""
    assert len(BY_NAME) == len(RULES)
    assert all(rule.removes and rule.safe and rule.evidence for rule in RULES)


def test_untouched_lines_are_copied_with_their_oddities():
    """Spaces, escapes, CRLF, damage, NULs, blank lines, unknown types: byte for byte."""
    odd = (
        b'\xef\xbb\xbf{ "type" : "user", "uuid":"' + uid("p").encode() + b'", "parentUuid":null,'
        b' "message" : {"role":"user","content":"caf\\u00e9 \\ud83d"} }\r\n'
        b"\n\0\0\0\n{broken\n" + b'{"type":"brand-new","x":1}\n'
        b'{"type":"a"}{"type":"api-request"}\n'
    )
    data = odd + line({"type": "api-request", "x": "y" * 99}) + reply("q", "p", "ok")
    image, decided = pruned(data)
    assert image == odd + reply("q", "p", "ok")
    assert [saving.rule for saving in decided.savings] == ["api-request"]


def test_tool_use_result_is_cut_out_wherever_it_stands_in_the_record():
    """First, middle or last member: only it and one comma go."""
    block = '{"content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}'
    big = '{"stdout":"' + "x" * 300 + '"}'
    for parts in (
        ['"toolUseResult": ' + big, '"type":"user"', '"message":' + block, f'"uuid":"{uid("r")}"'],
        ['"type":"user"', '"toolUseResult":' + big, '"message":' + block, f'"uuid":"{uid("r")}"'],
        ['"type":"user"', '"message":' + block, f'"uuid":"{uid("r")}"', '"toolUseResult":' + big],
    ):
        data = ("{" + " , ".join(parts) + "}\n").encode() + reply("q", "r", "ok")
        image, _ = pruned(data)
        kept = [part for part in parts if "toolUseResult" not in part]
        assert image == ("{" + " , ".join(kept) + "}\n").encode() + reply("q", "r", "ok")


def test_progress_goes_and_its_children_hang_below_what_stays():
    """Chains through progress records are linked anew, never cut."""
    step = {**record("progress", "s", "p"), "data": {"x": "y" * 500}}
    data = prompt("p", None, "go") + line(step) + reply("q", "s", "done")
    image, decided = pruned(data)
    assert decided.evicted == {uid("s")}
    assert json.loads(image.splitlines()[-1])["parentUuid"] == uid("p")
    assert forbidden(json.dumps({"parentUuid": uid("s")}).encode(), decided)
    assert not forbidden(json.dumps({"parentUuid": uid("p")}).encode(), decided)


def test_superseded_metadata_goes_and_the_newest_of_each_stays_last():
    """The final last-prompt, the newest title and mode; titles near the head stay too."""
    filler = reply("x", "p", "f" * 70_000)
    data = (
        prompt("p", None, "go")
        + line({"type": "custom-title", "customTitle": "early", "sessionId": "s1"})
        + line({"type": "mode", "mode": "a"})
        + filler
        + line({"type": "custom-title", "customTitle": "middle", "sessionId": "s1"})
        + line({"type": "last-prompt", "leafUuid": uid("p")})
        + line({"type": "custom-title", "customTitle": "late", "sessionId": "s1"})
        + line({"type": "mode", "mode": "b"})
        + line({"type": "last-prompt", "leafUuid": uid("x")})
    )
    image, _ = pruned(data)
    assert b"early" in image
    assert b"middle" not in image
    assert image.endswith(
        line({"type": "custom-title", "customTitle": "late", "sessionId": "s1"})
        + line({"type": "mode", "mode": "b"})
        + line({"type": "last-prompt", "leafUuid": uid("x")})
    )


def wall(name, logical, **metadata):
    """A compact boundary and its summary."""
    boundary = {
        **record("system", name),
        "parentUuid": None,
        "subtype": "compact_boundary",
        "logicalParentUuid": uid(logical),
        "compactMetadata": {"trigger": "auto", **metadata},
    }
    told = {**record("user", f"{name}-sum", name, text="summary so far"), "isCompactSummary": True}
    return line(boundary) + line(told)


def test_everything_before_the_last_boundary_goes_but_what_it_preserves():
    """Preserved messages, damage and unknown types stay, byte for byte and in order."""
    kept = reply("keep", "a0", "still alive")
    before = talk(3) + b"{damage\n" + line({"type": "novel", "n": 1}) + kept
    data = before + wall("w", "keep", preservedMessages={"uuids": [uid("keep")]})
    data += prompt("n", "w-sum", "go on")
    image, decided = pruned(data)
    assert image == b"{damage\n" + line({"type": "novel", "n": 1}) + kept + data[len(before) :]
    assert {saving.rule for saving in decided.savings} == {"before-boundary"}


def test_boundary_with_a_preserved_segment_keeps_it_from_head_to_tail():
    """Field report: headUuid, anchorUuid and tailUuid and all between survive unchanged."""
    segment = {"headUuid": uid("p1"), "tailUuid": uid("a1"), "anchorUuid": uid("w-sum")}
    data = talk(2) + wall("w", "a1", preservedSegment=segment) + prompt("n", "w-sum", "go on")
    image, _ = pruned(data)
    uuids = [json.loads(one)["uuid"] for one in image.splitlines()]
    assert uuids[:4] == [uid(name) for name in ("p1", "c1", "r1", "a1")]
    assert wall("w", "a1", preservedSegment=segment) in image


def test_live_branch_from_before_the_boundary_switches_that_rule_off():
    """Whoever rewound past the compaction keeps all of it."""
    data = talk(2) + wall("w", "a1") + prompt("n", "a0", "another way")
    image, decided = pruned(data)
    assert "before-boundary" not in {saving.rule for saving in decided.savings}
    assert b"prompt 0" in image


def test_checkpoint_on_a_branch_before_the_boundary_switches_that_rule_off():
    """The final last-prompt decides what is resumed, wherever it points."""
    data = talk(2) + wall("w", "a1") + prompt("n", "w-sum", "on")
    data += line({"type": "last-prompt", "leafUuid": uid("a0")})
    image, _ = pruned(data)
    assert b"prompt 0" in image


def test_extract_takes_the_walls_out_and_links_across_them():
    """No boundary, no summary, one chain from the first prompt to the last."""
    data = talk(2) + wall("w", "a1") + prompt("n", "w-sum", "go on") + reply("o", "n", "ok")
    image, _ = pruned(data, mode="extract")
    assert b"compact_boundary" not in image
    assert b"summary so far" not in image
    values = {v["uuid"]: v for v in map(json.loads, image.splitlines())}
    chain, here = [], uid("o")
    while here:
        chain.append(here)
        here = values[here]["parentUuid"]
    assert chain[-1] == uid("p0")
    assert len(chain) == 10


def test_extract_stitches_a_dangling_wall_to_what_stands_before_it():
    """28 of 100 boundaries name a parent that was never written."""
    data = talk(1) + wall("w", "never-written") + prompt("n", "w-sum", "go on")
    image, _ = pruned(data, mode="extract")
    assert json.loads(image.splitlines()[-1])["parentUuid"] == uid("a0")


def test_lean_leaves_the_last_prompts_whole():
    """Old results become a line that names the record; the last K turns stay to the byte."""
    data = talk(5)
    image, decided = pruned(data, level="lean", keep=2)
    tail = b"".join(
        one.replace(b',"toolUseResult":{"stdout":"' + b"o" * 2000 + b'"}', b"")
        for one in (turn(3, parent="a2") + turn(4, parent="a3")).splitlines(keepends=True)
    )
    assert image.endswith(tail)
    stub = f"fablectl block {uid('r0')}]"
    assert stub.encode() in image
    assert {saving.rule for saving in decided.savings} == {"tool-use-result", "tool-result"}


def test_lean_shortens_inputs_images_and_thinking_but_pairs_stay_pairs():
    """Every call keeps its answer, every signature what it signs or neither."""
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 4000}
    picture = {"type": "image", "source": source}
    ask = record("user", "p0", None)
    ask["message"]["content"] = [{"type": "text", "text": "look"}, picture]
    think = record("assistant", "t0", "p0", message={"id": "m1"})
    think["message"]["content"] = [{"type": "thinking", "thinking": "hm", "signature": "s" * 600}]
    call = record("assistant", "c0", "t0", message={"id": "m1"})
    call["message"]["content"] = [
        {
            "type": "tool_use",
            "id": "toolu_0",
            "name": "Write",
            "input": {"content": "\u00e9" * 3000},
        }
    ]
    answer = record("user", "r0", "c0")
    answer["message"]["content"] = [
        {"type": "tool_result", "tool_use_id": "toolu_0", "content": [picture], "is_error": False}
    ]
    data = line(ask) + line(think) + line(call) + line(answer) + reply("a0", "r0", "ok")
    data += turn(1, 10, "a0") + reply("z", "a1", "end", message={"id": "m2"})
    image, decided = pruned(data, level="lean", keep=1)
    names = {saving.rule for saving in decided.savings}
    assert names >= {"tool-input", "image", "thinking"}
    assert b"signature" not in image
    values = [json.loads(one) for one in image.splitlines()]
    assert values[1]["message"]["content"][0]["input"]["content"].startswith("\u00e9" * 100)
    assert values[1]["parentUuid"] == uid("p0")
    assert values[2]["message"]["content"][0]["tool_use_id"] == "toolu_0"
    assert values[0]["message"]["content"][1]["type"] == "text"


def test_lean_never_touches_a_message_that_reaches_into_the_protected_turns():
    """P4: thinking of a message id goes for all of its records or for none."""
    think = record("assistant", "t0", "p0", message={"id": "m1"})
    think["message"]["content"] = [{"type": "thinking", "thinking": "", "signature": "s" * 900}]
    late = record("assistant", "t1", "p1", message={"id": "m1"})
    late["message"]["content"] = [{"type": "text", "text": "same message"}]
    data = prompt("p0", None, "one") + line(think) + prompt("p1", "t0", "two") + line(late)
    data += line({"type": "api-request", "x": "y" * 50})
    image, _ = pruned(data, level="lean", keep=1)
    assert line(think) in image


def test_recalled_text_becomes_its_citation_and_imitations_stay():
    """Only what this home signed is replaced; the arcs stay named."""
    real = wrap("old words " * 300, "s0", ["u:abc"], KEY)
    fake = real.replace('sig="', 'sig="0')
    data = prompt("p0", None, real) + reply("a0", "p0", fake) + talk(1).replace(b"p0", b"p9")
    image, decided = pruned(data, level="lean", keep=1)
    assert b'<consulted_arcs refs=\\"u:abc\\"/>' in image
    assert b"old words" in image
    assert {"recalled"} <= {saving.rule for saving in decided.savings}


def test_circles_mixtures_and_torn_ends_are_left_alone():
    """M2, M3: cyclic, interleaved sessions, damage at the tail, nothing said."""
    circle = prompt("x", "b", "x") + reply("b", "x", "b")
    assert declined(circle) == "cyclic"
    again = prompt("x", "a", "x") + prompt("b", "x", "b") + prompt("x", "b", "x")
    assert declined(again) == "cyclic"
    logical = wall("w", "n") + prompt("n", "w-sum", "go on")
    assert declined(logical) == "cyclic"
    mixture = b"".join(
        prompt(f"m{n}", f"m{n - 1}" if n else None, "x", session=f"s{n % 2}") for n in range(6)
    )
    assert declined(mixture) == "mixed"
    assert declined(talk(1) + b'{"type":"user","uu\n') == "damaged_tail"
    assert declined(line({"type": "mode", "mode": "x"})) == "empty"


def test_resumed_copy_of_another_session_is_no_mixture():
    """One run of the old id, then one of the new: that is what a resume writes."""
    data = talk(1).replace(b'"s1"', b'"s0"') + turn(1, parent="a0")
    image, _ = pruned(data)
    assert len(image) < len(data)


def test_parallel_calls_keep_every_branch():
    """P3: three calls of one message and their results, whatever the level."""
    calls = b"".join(
        tool_call(f"c{n}", f"c{n - 1}" if n else "p", f"toolu_{n}", "ls", message={"id": "m"})
        for n in range(3)
    )
    results = b"".join(tool_result(f"r{n}", f"c{n}", f"toolu_{n}", "x" * 3000) for n in range(3))
    data = prompt("p", None, "go") + calls + results + reply("a", "r2", "ok") + turn(7, 5, "a")
    for level in ("transparent", "lean"):
        image, _ = pruned(data, level=level, keep=1)
        values = [json.loads(one) for one in image.splitlines()]
        blocks = [b for v in values for b in v["message"]["content"] if isinstance(b, dict)]
        used = [b["id"] for b in blocks if b["type"] == "tool_use"]
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert sorted(used) == sorted(answered) == ["toolu_0", "toolu_1", "toolu_2", "toolu_7"]


def test_long_session_keeps_its_tail_and_last_metadata():
    """P2: ten thousand records, two boundaries; the last of each kind and the tail are there."""
    data = talk(1200, 40) + wall("w1", "a1199") + turn(2000, parent="w1-sum")
    data += wall("w2", "a2000") + turn(3000, parent="w2-sum")
    data += line({"type": "permission-mode", "permissionMode": "plan"})
    data += line({"type": "ai-title", "aiTitle": "t"})
    data += line({"type": "last-prompt", "leafUuid": uid("a3000")})
    image, _ = pruned(data)
    assert len(image) < len(data) / 100
    for name in ("p3000", "c3000", "r3000", "a3000", "w2", "w2-sum"):
        assert uid(name).encode() in image
    assert image.endswith(b"".join(data.splitlines(keepends=True)[-3:]))


SABOTAGE = {
    "record dropped": lambda lines: lines[:5] + lines[6:],
    "lines swapped": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "parent nulled": lambda lines: [
        *lines[:4],
        lines[4].replace(f'"parentUuid":"{uid("a0")}"'.encode(), b'"parentUuid":null'),
        *lines[5:],
    ],
    "answer altered": lambda lines: [
        *lines[:3],
        lines[3].replace(b"answer", b"Answer"),
        *lines[4:],
    ],
    "result dropped": lambda lines: lines[:2] + lines[3:],
    "damage dropped": lambda lines: [one for one in lines if one != b"{damage\n"],
    "unknown type dropped": lambda lines: [one for one in lines if b"novel" not in one],
    "last checkpoint dropped": lambda lines: lines[:-1],
}


@pytest.mark.parametrize("kind", SABOTAGE)
@pytest.mark.parametrize("level", ["transparent", "lean"])
def test_check_catches_sabotage_that_a_plan_would_never_commit(kind, level):
    """The second opinion is one: each single fault in a new image is reported."""
    data = talk(3) + b"{damage\n" + line({"type": "novel"})
    data += line({"type": "last-prompt", "leafUuid": uid("a2")})
    image, _ = pruned(data, level=level, keep=3)
    wrong = b"".join(SABOTAGE[kind](image.splitlines(keepends=True)))
    assert wrong != image
    chosen = options(level=level, keep=3)
    assert problems(Bytes(data), len(data), Bytes(wrong), len(wrong), "s1", chosen)


names = st.sampled_from([f"u{n}" for n in range(9)])
maybe = st.one_of(st.none(), names)
odd_lines = st.one_of(
    st.builds(prompt, names, maybe, st.text(max_size=20)),
    st.builds(lambda n, p, s: reply(n, p, "r" * s), names, maybe, st.integers(0, 1500)),
    st.builds(lambda n, p: tool_call(n, p, f"toolu_{n}", "c" * 1500), names, maybe),
    st.builds(lambda n, p: tool_result(n, p, f"toolu_{n}", "o" * 1500), names, maybe),
    st.builds(lambda n, p: line({**record("progress", n, p), "data": {}}), names, maybe),
    st.builds(lambda n, p: wall(n, p or "none"), names, maybe),
    st.builds(lambda n: line({"type": "last-prompt", "leafUuid": uid(n)}), names),
    st.builds(lambda n: line({"type": "mode", "mode": n}), names),
    st.sampled_from([b"\n", b"{x\n", b"\0\n", b'{"type":"api-request"}\n', b"[1]\n", b"\xff\n"]),
    st.builds(lambda a, b: prompt(a, None, "x")[:-1] + prompt(b, None, "y"), names, names),
)


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(odd_lines, max_size=14),
    level=st.sampled_from(["transparent", "lean"]),
    mode=st.sampled_from(["resume", "extract"]),
    keep=st.integers(0, 3),
)
def test_any_transcript_is_declined_or_pruned_without_growing_reordering_or_losing_damage(
    parts, level, mode, keep
):
    """Whatever the file: never longer, order kept, edits inside, and a second prune is calm."""
    data = b"".join(parts)
    chosen = options(level=level, mode=mode, keep=keep)
    decided = plan(Bytes(data), len(data), "s1", chosen)
    if isinstance(decided, Decline):
        return
    image = b"".join(pieces(Bytes(data), decided))
    assert len(image) == decided.after_bytes <= len(data)
    at = 0
    for edit in decided.edits:
        assert edit.offset >= at
        assert len(edit.data) <= edit.length
        at = edit.offset + edit.length
    assert at <= len(data)
    for one in data.splitlines(keepends=True):
        if one in (b"{x\n", b"\0\n", b"[1]\n", b"\xff\n", b"\n"):
            assert one in image
    again = plan(Bytes(image), len(image), "s1", chosen)
    if isinstance(again, Plan):
        assert again.after_bytes <= len(image)
