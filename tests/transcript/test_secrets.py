"""Secrets are known by their shapes, and ordinary code is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.secrets import RULES, redact
from fabled.transcript.text import RESULT, RESULT_HEAD, Part, searchable
from fabled.transcript.veil import Veil

# Put together at run time: whole ones would look like leaks to whoever scans this repository.
_A, _N = "abcdefGHIJKLMnopqrSTUVwxyz", "0123456789"
PLANTED = {
    "aws key": "AKIA" + "IOSFODNN7EXAMPLE",
    "github token": "ghp_" + _A + _N,
    "github fine": "github_pat_" + _A + _N,
    "gitlab": "glpat-" + _A[:20],
    "slack": "xoxb-" + _N + "-" + _A[:16],
    "anthropic": "sk-ant-api03-" + _A + _N,
    "openai": "sk-proj-" + _A + _N,
    "google": "AIza" + (_A + _N)[:35],
    "stripe": "sk_live_" + _A[:24],
    "npm": "npm_" + (_A + _N)[:36],
    "hugging face": "hf_" + (_A + _N)[:34],
    "jwt": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJl",
    "telegram": "123456789:AA" + (_A + _N)[:33],
    "age": "AGE-SECRET-KEY-1" + "QZ" * 24,
}


@pytest.mark.parametrize("name", PLANTED)
def test_issued_token_is_replaced_whole_wherever_it_stands(name):
    """In prose, in quotes, in an assignment, at either end of the text."""
    secret = PLANTED[name]
    for text in (secret, f"use {secret} now", f'"{secret}"', f"TOKEN={secret}\n", f"({secret})"):
        assert secret not in redact(text)
        assert "[redacted: " in redact(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://app:hunter2x@db/main", "hunter2x"),
        ("https://user:p%40ss9w@host/path", "p%40ss9w"),
        ("Authorization: Bearer abc123def456ghi789", "abc123def456ghi789"),
        ('password = "c0rrect-h0rse"', "c0rrect-h0rse"),
        ('{"api_key": "9f8e7d6c5b4a39281706"}', "9f8e7d6c5b4a39281706"),
        ('{\\"clientSecret\\": \\"9f8e7d6c5b4a39281706\\"}', "9f8e7d6c5b4a39281706"),
        ("export DB_PASSWORD=tr0ub4dor3", "tr0ub4dor3"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY1", "wJalrXUtnFEMIK7"),
    ],
)
def test_value_in_a_secrets_place_is_replaced_and_its_name_is_kept(text, secret):
    """What it was for stays readable and searchable."""
    found = redact(text)
    assert secret not in found
    assert found.split("[redacted")[0] == text.split(secret)[0]


def test_private_key_is_replaced_to_its_end_and_beyond_a_cut():
    """Also one whose end is not in the text."""
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"] * 20)
    kind = "RSA PRIVATE KEY"
    whole = f"a\n-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\nb"
    assert redact(whole) == "a\n[redacted: private key]\nb"
    assert "MIIE" not in redact(whole[:300])


@pytest.mark.parametrize(
    "text",
    [
        "token = get_token(request)",
        "password: str | None = None",
        "const secretName = config.secretName",
        "the api_key parameter is required",
        "max_tokens=4096, token_count: 123456789012",
        "self.password = self.settings.password2",
        "secret_path = /home/me/projects/app1/secrets",
        "https://example.org:8443/path",
        "def test_password_1_is_checked(): pass",
        "commit 1f8ab39c2d for sk-learn and task-runner",
        "tokenizer = AutoTokenizer.from_pretrained",
    ],
)
def test_ordinary_code_is_left_alone(text):
    """What only talks of secrets stays as it is."""
    assert redact(text) == text


@given(st.text(alphabet="ab1=:\"' -_.\n{}[]()pswordtkenAKIA", max_size=300))
def test_redacting_twice_is_redacting_once(text):
    """Nothing that was put in looks like a secret."""
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "piece", ["token", "a.b" * 10, "password=", "eyJ" * 9, "sk-" * 9, "://a:", "-----BEGIN "]
)
def test_no_text_makes_redacting_explode(piece):
    """A quarter of a million characters of the worst pieces end within the suite's time limit."""
    assert isinstance(redact(piece * 20_000), str)


def test_cut_never_leaves_half_a_secret():
    """A secret over the edge of what is indexed of a result is taken out before the cut."""
    secret = PLANTED["github token"]
    for before in range(RESULT_HEAD - len(secret) - 2, RESULT_HEAD + 1):
        part = Part(RESULT, "x" * (before - 1) + " " + secret + " tail")
        text = searchable([part], Veil(b"k" * 32)).text
        assert "ghp_" not in text
        assert len(text) <= RESULT_HEAD


def test_every_rule_has_hints_in_lower_case():
    """The hints are compared with lower-case text."""
    assert all(hint == hint.lower() and hint for rule in RULES for hint in rule.hints)
