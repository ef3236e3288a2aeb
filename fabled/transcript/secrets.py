"""Secrets by their recognised shapes, replaced before text is indexed or shown.

Two kinds of rule: tokens whose issuer gave them a prefix or a form of their own, and
values that stand where a secret stands (`password = "..."`, `user:word@host`). The
second kind asks for more, so that ordinary code stays searchable.

Each pattern is tried only where one of its hints stands. detect-secrets 1.5 finds the
same planted secrets, but works on files, line by line, and takes far longer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Rule(NamedTuple):
    """One shape.

    Attributes:
        name: What is written in place of the secret.
        hints: Lower case; the pattern begins where one of them does.
        pattern: Group `secret`, or the whole match, is replaced.
        whole: Nothing that belongs to a word may stand before it.
        wary: Only a value that looks random is taken for a secret.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    whole: bool
    wary: bool


def _rule(name: str, hints: str, pattern: str, *, whole: bool = True, wary: bool = False) -> Rule:
    return Rule(name, tuple(hints.split("|")), re.compile(pattern), whole, wary)


RULES = (
    _rule(
        "private key",
        "-----begin ",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?s:.{0,16384}?)"
        r"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)",
        whole=False,
    ),
    _rule("aws key", "akia|asia|abia|acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    _rule("github token", "ghp_|gho_|ghu_|ghs_|ghr_", r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    _rule("github token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}"),
    _rule("gitlab token", "glpat-|gldt-|glrt-", r"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,255}"),
    _rule("slack token", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    _rule("slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/[\w/+-]{20,255}"),
    _rule("api key", "sk-", r"sk-(?:[a-z0-9]{1,16}-){0,3}[A-Za-z0-9_-]{20,255}"),
    _rule("google key", "aiza", r"AIza[\w-]{35}"),
    _rule("google token", "ya29.|gocspx-", r"(?:ya29\.|GOCSPX-)[\w-]{20,1024}"),
    _rule(
        "stripe key",
        "sk_live_|rk_live_|pk_live_|sk_test_|rk_test_|pk_test_",
        r"[rsp]k_(?:live|test)_[A-Za-z0-9]{16,255}",
    ),
    _rule("webhook secret", "whsec_", r"whsec_[A-Za-z0-9]{16,255}"),
    _rule("npm token", "npm_", r"npm_[A-Za-z0-9]{36}\b"),
    _rule("pypi token", "pypi-ag", r"pypi-Ag[\w-]{50,1024}"),
    _rule("hugging face token", "hf_", r"hf_[A-Za-z0-9]{30,255}\b"),
    _rule("digitalocean token", "doo_v1_|dop_v1_|dor_v1_", r"do[opr]_v1_[a-f0-9]{64}\b"),
    _rule("sendgrid key", "sg.", r"SG\.[\w-]{16,64}\.[\w-]{16,64}"),
    _rule("telegram token", ":aa", r"(?<=\d{8}):AA[\w-]{32,64}", whole=False),
    _rule("vault token", "hvs.|hvb.", r"hv[sb]\.[\w-]{24,255}"),
    _rule("age key", "age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}"),
    _rule("azure key", "accountkey=", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{60,120}={0,2})"),
    _rule("jwt", "eyj", r"eyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{8,4096}"),
    _rule(
        "password",
        "://",
        r"://[^\s/:@'\"<>]{0,256}:(?P<secret>[^\s/@'\"<>${}]{1,256})@",
        whole=False,
    ),
    _rule(
        "credentials",
        "authorization",
        r"(?i:authorization)['\"\\]{0,4}\s{0,4}[:=]\s{0,4}['\"\\]{0,4}"
        r"(?i:bearer|basic|token)\s{1,4}(?P<secret>[\w.~+/=-]{8,4096})",
        whole=False,
    ),
    _rule("credentials", "bearer", r"(?i:bearer)\s{1,4}(?P<secret>[\w.~+/=-]{20,4096})", wary=True),
    _rule(
        "secret",
        "passwd|password|pwd|secret|token|api_key|apikey|api-key|access_key|accesskey|private_key",
        r"[\w-]{2,60}?['\"\\]{0,3}\s{0,4}(?:=>|[:=])\s{0,4}['\"\\]{0,3}"
        r"(?P<secret>[^\s'\"\\<>(){}\[\],;$`]{8,512})",
        whole=False,
        wary=True,
    ),
)
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class _Span(NamedTuple):
    start: int
    end: int
    name: str


def redact(text: str) -> str:
    """The same text with `[redacted: KIND]` where a secret was. Cost: linear."""
    # Other alphabets change their length in lower case, and the places have to be the same.
    lower = text.lower() if text.isascii() else text.translate(_ASCII_LOWER)
    spans = [span for rule in RULES for span in _spans(rule, text, lower)]
    if not spans:
        return text
    pieces: list[str] = []
    at = 0
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if span.start < at:
            continue
        pieces += [text[at : span.start], f"[redacted: {span.name}]"]
        at = span.end
    return "".join([*pieces, text[at:]])


def _spans(rule: Rule, text: str, lower: str) -> Iterator[_Span]:
    named = "secret" in rule.pattern.groupindex
    for hint in rule.hints:
        at = lower.find(hint)
        while at >= 0:
            after = at + len(hint)
            found = rule.pattern.match(text, at)
            if found is not None and not (rule.whole and at and _in_word(text[at - 1])):
                start, end = found.span("secret") if named else found.span()
                if not rule.wary or _random(text[start:end]):
                    yield _Span(start, end, rule.name)
                    after = end
            at = lower.find(hint, after)


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _random(value: str) -> bool:
    """Whether a value looks chosen by chance or to be hard to guess, unlike a name in code."""
    if value.startswith("[redacted") or not _mixed(value):
        return False
    if re.search(r"^[\w.]*(?:env|config|settings|process|os|self|this)[.]", value, re.IGNORECASE):
        return False
    if value.startswith(("/", "./", "~", "http:", "https:")) or value.count("/") > 4:
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= 2.5


def _mixed(value: str) -> bool:
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
