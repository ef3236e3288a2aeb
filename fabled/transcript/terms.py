"""The vocabulary of a thread, derived from its words alone: always the same for the same words.

Four kinds: operatives (what was done: a closed list of verbs), targets (what it was done
to: paths, identifiers, error codes, flags, hosts), concepts (what it was about: noun
phrases) and wikilinks. Nobody has to tag anything, and no list of topics is needed.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fabled.transcript.text import PROMPT, REPLY, TOOL
from fabled.transcript.verbs import FORMS, NOUNS
from fabled.transcript.words import CJK, STOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fabled.transcript.text import Part
    from fabled.transcript.veil import Veil

OPERATIVE, TARGET, CONCEPT, WIKILINK = "operative", "target", "concept", "wikilink"
KINDS = (OPERATIVE, TARGET, CONCEPT, WIKILINK)

MOST = {OPERATIVE: 64, TARGET: 400, CONCEPT: 48, WIKILINK: 200}
"""Terms kept of each kind: the most frequent ones of the thread, ties in the order of the text."""

LONGEST = 160
TICKED, TICKED_WORDS = 80, 4
"""A back-ticked span of more characters or words is a quotation."""

PROSE_HEAD = 65536
INPUT_HEAD = 2048
"""Characters of one prompt or reply, and of one tool input, that are looked at.

A tool input's bulk is the content of files; what it is about stands at its beginning."""

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<([a-z][a-z_-]{2,40})>.*?</\1>", re.DOTALL)
_CLIENT_TAG = re.compile(r"</?(?:bash|command|local-command|system|task|user|ide)-[a-z-]{2,30}>")
_TICKED = re.compile(r"`([^`\n]{2,160})`")
_LINK = re.compile(r"(?<!\[)\[\[([^\[\]|#\n\s-][^\[\]|#\n]{0,118})(?:[|#][^\[\]\n]*)?\]\](?!\])")
_URL = re.compile(
    r"\bhttps?://([A-Za-z0-9.-]+\.[A-Za-z]{2,24}|localhost)(?::\d+)?(?:/[^\s\"'<>)\]]*)?"
)
_PATH = re.compile(
    r"(?<![\w/.:-])(?:~|\.{1,2}|[A-Za-z]:)?(?:/?[\w.@+-]+)(?:/[\w.@+-]+)+/?(?![\w/])"
)
_FILE = re.compile(
    r"(?<![\w./-])[\w-]+(?:\.[\w-]+)*\.(?:astro|bash|bat|c|cc|cfg|clj|cmake|conf|cpp|cs|css|csv|dart|"
    r"db|diff|ex|exs|env|erl|gif|go|gradle|graphql|h|hpp|hs|html?|ini|ipynb|java|jl|jpe?g|js|json|"
    r"jsonl|jsx|kts?|lock|log|lua|md|mdx|mjs|ml|mm|nix|patch|pdf|php|plist|png|proto|ps1|py|pyi|rb|"
    r"rs|rst|sass|scala|scss|service|sh|sql|sqlite|svelte|svg|swift|tex|tf|toml|tsv?|tsx|txt|vue|"
    r"wasm|webp|xml|ya?ml|zig|zip|zsh)(?![\w-]|\.\w)"
)
_SNAKE = re.compile(r"(?<![\w.-])_{0,2}[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+_{0,2}(?![\w-])")
_CAMEL = re.compile(
    r"(?<![\w-])(?:[a-z]+[0-9]*(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,}|[A-Z]{2,}[a-z][A-Za-z0-9]+)(?![\w-])"
)
_KEBAB = re.compile(r"(?<![\w./-])@?[a-z][a-z0-9]*(?:/[a-z][a-z0-9]*)?(?:-[a-z0-9]+)+(?![\w/-])")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")
_CODE = re.compile(
    r"\b(?:E[A-Z]{3,}|[A-Z]{1,4}-?\d{3,6}|[A-Z][A-Za-z]*(?:Error|Exception|Warning)|"
    r"(?:HTTP|http) ?[1-5]\d\d|SIG[A-Z]{2,8}|CVE-\d{4}-\d{4,7})\b"
)
_ENGLISH = re.compile(r"[A-Za-z][a-z]*(?:-(?:up|back|upped))?")
_PLAIN_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_BREAK = re.compile(
    r"[.!?:;,()\[\]{}<>\"\u201c\u201d|/\\=+*#~\n\r\t\u2014\u2013\u3002\uff0c\u3001\uff01\uff1f]+|\s-\s"
)
_CJK_RUN = re.compile(f"[{CJK}]+")
_COMMON_TEXT = """
able actually again already also always another anything back bad best better big bit case
certain come comes coming current currently different doing done easy either else end enough even
ever every everything exactly example far few file files fine first following full get gets
getting give given go goes going gone good got great happen happened happens hard help high i'm
instead is issue it's keep key kind know last later least left less let let's line lines little
long look looking looks lot low main make makes making many matter maybe mean means might much
need needed needs never new next nice nothing now number ok okay old one ones only open part
people perhaps place please point possible pretty probably problem put quick quite rather ready
really right same say see seems sense several should side simple since single small something
sometimes soon still stuff sure take takes tell than thank thanks that's thing things think
though thought time times today together total trying two type various very want wants way ways
well whether whole without work worked working works would yes yet you're
"""
_COMMON = frozenset(_COMMON_TEXT.split())
_PREFIXES_TEXT = """
anti co cross double easy ever full half hard high long low multi much non old one pre quasi re
real self semi short single so sub third two under well
"""
_PREFIXES = frozenset(_PREFIXES_TEXT.split())
_HAN_COMMON = re.compile(
    "[\u7684\u4e86\u662f\u5728\u548c\u4e0e\u6211\u4f60\u4ed6\u8fd9\u90a3\u4e2a\u5417\u5427\u5462\u8bf7\u628a\u88ab\u8981\u3092\u306b\u306f\u304c\u3067\u3068\u3082\u306e\u3078\u3084\u304b\u3089]+"
)


class Terms(NamedTuple):
    """A thread's terms by kind, each with how often it stands there."""

    by_kind: dict[str, dict[str, int]]


class Gatherer:
    """Takes a thread's records in order; `result` is its vocabulary.

    Args:
        veil: Recalls and secrets are nobody's vocabulary.
    """

    def __init__(self, veil: Veil) -> None:
        self._veil = veil
        self._found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}

    def add(self, parts: Iterable[Part]) -> None:
        """Take one record's parts. Cost: linear in what is looked at."""
        for part in parts:
            if part.kind in {PROMPT, REPLY}:
                self._prose(self._veil.look(part.text, PROSE_HEAD).text)
            elif part.kind == TOOL:
                # The first line is the tool's own name.
                inputs = part.text.partition("\n")[2]
                self._targets(self._veil.look(inputs, INPUT_HEAD).text)

    def result(self) -> Terms:
        """The most frequent terms of each kind."""
        return Terms({kind: dict(self._top(kind)) for kind in KINDS})

    def _top(self, kind: str) -> Iterator[tuple[str, int]]:
        order = {term: at for at, term in enumerate(self._found[kind])}
        weighed = sorted(
            self._found[kind].items(),
            key=lambda item: (-item[1] * (1 + item[0].count(" ")), order[item[0]]),
        )
        yield from weighed[: MOST[kind]]

    def _prose(self, text: str) -> None:
        self._found[WIKILINK].update(
            link.strip() for link in _LINK.findall(_FENCE.sub(" ", text)) if link.strip()
        )
        self._targets(text)
        plain = _FENCE.sub(" . ", text)
        plain = _TAGGED.sub(" . ", plain)
        plain = _TICKED.sub(" . ", plain)
        plain = _URL.sub(" . ", plain)
        words = (word.lower() for word in _ENGLISH.findall(plain))
        self._found[OPERATIVE].update(FORMS[word] for word in words if word in FORMS)
        self._found[CONCEPT].update(_concepts(plain))

    def _targets(self, text: str) -> None:
        found = self._found[TARGET]
        text = _CLIENT_TAG.sub(" ", text)
        for host in _URL.findall(text):
            found[host.lower()] += 1
        rest = _URL.sub(" ", text)
        for ticked in _TICKED.findall(rest):
            if _worth_ticking(ticked):
                found[ticked.strip()] += 1
        for path in _PATH.findall(rest):
            if _is_path(path):
                found[path] += 1
                name = path.rstrip("/").rpartition("/")[2]
                if sum(c.isalpha() for c in name) > 1:
                    found[name] += 1
        rest = _PATH.sub(" ", rest)
        for pattern in (_FILE, _SNAKE, _CAMEL, _KEBAB, _FLAG, _CODE):
            for term in pattern.findall(rest):
                if len(term) <= LONGEST and not _is_word(term):
                    found[term] += 1


def _worth_ticking(text: str) -> bool:
    stripped = text.strip()
    short = len(stripped) <= TICKED and stripped.count(" ") < TICKED_WORDS
    return short and sum(c.isalpha() for c in stripped) > 1


def _is_path(path: str) -> bool:
    """Whether it is a path, and not `and/or` or a date."""
    if len(path) > LONGEST:
        return False
    if path.startswith(("/", "~", "./", "../")):
        return any(c.isalpha() for c in path)
    parts = path.strip("/").split("/")
    return "." in parts[-1] or len(parts) > 2 or any(c in path for c in "_.@")


def _is_word(term: str) -> bool:
    """Hyphenated English, such as `built-in`, is nobody's package."""
    first, *rest = term.lower().split("-")
    if not rest:
        return False
    pieces = [first, *rest]
    return first in _PREFIXES or any(p in STOP for p in pieces) or all(p in _COMMON for p in pieces)


def _concepts(text: str) -> Iterator[str]:
    """Candidates: runs of words that carry meaning, two or three together, or a long one alone."""
    for cjk in _CJK_RUN.findall(text):
        for piece in _HAN_COMMON.split(cjk):
            if 2 <= len(piece) <= 8:
                yield piece
    for sentence in _BREAK.split(text):
        run: list[str] = []
        for word in [*_PLAIN_WORD.findall(sentence), ""]:
            lower = word.lower().replace("\u2019", "'")
            if lower and _carries(lower):
                run.append(lower)
                continue
            yield from _grams(run)
            run = []


def _carries(word: str) -> bool:
    if _CJK_RUN.search(word) or "'" in word:
        return False
    if word in STOP or word in _COMMON or not 2 < len(word) <= 32:
        return False
    return word not in FORMS or word in NOUNS


def _grams(run: list[str]) -> Iterator[str]:
    for size in (2, 3):
        for at in range(len(run) - size + 1):
            yield " ".join(run[at : at + size])
    for word in run:
        if len(word) > 3 and word not in FORMS:
            yield word
