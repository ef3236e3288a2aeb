"""Secrets by their recognised shapes, replaced before text is indexed or shown.

Two kinds of rule: tokens whose issuer gave them a prefix or a form of their own, and
values that stand where a secret stands (`password = "..."`, `user:word@host`). The
second kind asks for more, so that ordinary code stays searchable.

Measured against detect-secrets 1.5 (which works on files, line by line): the same
planted secrets are found, at about a hundred times its speed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple


class Rule(NamedTuple):
    """One shape.

    Attributes:
        name: What is written in place of the secret.
        hints: Without any of these (lower case) in the text the pattern is not tried.
        pattern: Group `secret`, or the whole match, is replaced.
        wary: Only a value that looks random is taken for a secret.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    wary: bool = False


def _rule(name: str, hints: str, pattern: str, *, wary: bool = False) -> Rule:
    return Rule(name, tuple(hints.split()), re.compile(pattern), wary)


RULES = (
    _rule(
        "private key",
        "private",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?s:.{0,16384}?)"
        r"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _rule("aws key", "akia asia abia acca", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    _rule("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"\bgh[pousr]_[A-Za-z0-9]{30,255}"),
    _rule("github token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,255}"),
    _rule("gitlab token", "glpat- gldt- glrt-", r"\bgl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,}"),
    _rule("slack token", "xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _rule("slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/[A-Za-z0-9/+_-]{20,}"),
    _rule("api key", "sk-", r"\bsk-(?:[a-z0-9]+-)*[A-Za-z0-9_-]{20,}"),
    _rule("google key", "aiza", r"\bAIza[\w-]{35}"),
    _rule("google token", "ya29. gocspx-", r"\b(?:ya29\.|GOCSPX-)[\w-]{20,}"),
    _rule("stripe key", "k_live_ k_test_", r"\b[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _rule("webhook secret", "whsec_", r"\bwhsec_[A-Za-z0-9]{16,}"),
    _rule("npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    _rule("pypi token", "pypi-ag", r"\bpypi-Ag[\w-]{50,}"),
    _rule("hugging face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}\b"),
    _rule("digitalocean token", "_v1_", r"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    _rule("sendgrid key", "sg.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    _rule("telegram token", ":aa", r"\b\d{8,10}:AA[\w-]{32,}"),
    _rule("vault token", "hvs. hvb.", r"\bhv[sb]\.[\w-]{24,}"),
    _rule("age key", "age-secret-key-", r"\bAGE-SECRET-KEY-1[A-Z0-9]{40,}"),
    _rule("azure key", "accountkey=", r"\bAccountKey=(?P<secret>[A-Za-z0-9+/]{60,}={0,2})"),
    _rule("jwt", "eyj", r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    _rule("password", "://", r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@'\"<>]{0,256}:(?P<secret>[^\s/@'\"<>${}]{1,256})@"),
    _rule(
        "credentials",
        "authorization",
        r"(?i)\bauthorization['\"\\]*\s*[:=]\s*['\"\\]*(?:bearer|basic|token)\s+(?P<secret>[\w.~+/=-]{8,})",
    ),
    _rule("credentials", "bearer", r"(?i)\bbearer\s+(?P<secret>[\w.~+/=-]{20,})", wary=True),
    _rule(
        "secret",
        "passw pwd secret token api_key apikey api-key access_key private_key",
        r"(?i)(?:passw(?:or)?d|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key)"
        r"[\w.-]{0,40}['\"\\]{0,3}\s{0,4}(?:=>|[:=])\s{0,4}['\"\\]{0,3}(?P<secret>[^\s'\"\\<>(){}\[\],;$`]{8,512})",
        wary=True,
    ),
)  # fmt: skip


def redact(text: str) -> str:
    """The same text with `[redacted: KIND]` where a secret was. Cost: linear."""
    lower = text.lower()
    for rule in RULES:
        if any(hint in lower for hint in rule.hints):
            text = rule.pattern.sub(_Replace(rule), text)
    return text


class _Replace:
    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def __call__(self, match: re.Match[str]) -> str:
        named = "secret" in self._rule.pattern.groupindex
        start, end = match.span("secret") if named else match.span()
        secret = match.string[start:end]
        if (self._rule.wary and not _random(secret)) or secret.startswith("[redacted"):
            return match[0]
        before, after = match.string[match.start() : start], match.string[end : match.end()]
        return f"{before}[redacted: {self._rule.name}]{after}"


def _random(value: str) -> bool:
    """Whether a value looks chosen by chance or to be hard to guess, unlike a name in code."""
    if not any(c.isdigit() for c in value) or not any(c.isalpha() for c in value):
        return False
    if re.search(r"^[\w.]*(?:env|config|settings|process|os|self|this)[.]", value, re.IGNORECASE):
        return False
    if value.startswith(("/", "./", "~", "http:", "https:")) or value.count("/") > 4:
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= 2.5
