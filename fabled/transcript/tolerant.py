"""Decoding what strict decoders refuse, without losing a byte or inventing one.

msgspec, typed, is the fast way; invalid UTF-8, lone surrogates, NaN, a member of an
unexpected type or 5,000 levels of brackets make it give up. Here the standard library
reads the same bytes through `surrogateescape`, and the shallow scanner what is too deep.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from fabled.transcript.envelope import Block
from fabled.transcript.shallow import Items, Scanned, scan_array, scan_object

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T", bound=msgspec.Struct)

REFUSALS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for bytes it does not take."""


def _integer(text: str) -> int | float:
    # The interpreter refuses to convert longer ones; such a number identifies nothing.
    return int(text) if len(text) < 4000 else float("inf")


_DECODER = json.JSONDecoder(parse_int=_integer)


class Value(NamedTuple):
    """One JSON value in a text, or the finding that there is none.

    Attributes:
        value: The decoded value; the shallow parts of a container that is too deep.
        end: Index just past it; where none is, just past what had to be looked through.
        broken: The text is no JSON there.
    """

    value: object
    end: int
    broken: bool = False


class Deep(NamedTuple):
    """A container too deep to be built: its bytes and where its members or values are."""

    data: bytes
    scanned: Scanned | Items


_FIRST_WINDOW = 1024
_WIDER = 8
_MARGIN = 16
"""No token but a string is longer and shows its fault only at its end."""

_SCALAR = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+|true|false|null|NaN|-?Infinity"
)


def value_at(text: str, at: int) -> Value:
    """The JSON value that begins at an index; never raises, whatever the text.

    Costs what the value is long, or what precedes the fault: the standard library counts
    the lines before a fault, so it is shown no more of the text than it needs.
    """
    if text[at : at + 1] not in {"{", "[", '"'}:
        found = _SCALAR.match(text, at)
        if found is None:
            return Value(None, at + 1, broken=True)
        return Value(_DECODER.decode(found.group()), found.end())
    size = _FIRST_WINDOW
    while True:
        part = text[at : at + size]
        whole = at + size >= len(text)
        try:
            value, end = _DECODER.raw_decode(part)
        except json.JSONDecodeError as fault:
            if whole or not _cut(fault, len(part)):
                return Value(None, at + len(part), broken=True)
        except RecursionError:
            return _deep(text, at, size)
        else:
            return Value(value, at + end)
        size *= _WIDER


def _cut(fault: json.JSONDecodeError, length: int) -> bool:
    """Whether the fault may only be that the text was cut off there."""
    return fault.pos + _MARGIN >= length or fault.msg.startswith("Unterminated")


_DEEP_COST = 32
"""How much dearer a character is in the shallow scan than in the standard library."""


def _deep(text: str, at: int, size: int) -> Value:
    scan = scan_object if text[at] == "{" else scan_array
    while True:
        data = to_bytes(text[at : at + size])
        scanned = scan(data)
        if scanned is not None:
            end = at + len(data[: scanned.end].decode("utf-8", "surrogateescape"))
            return Value(Deep(data, scanned), end)
        if at + size >= len(text):
            return Value(None, at + _DEEP_COST * len(data), broken=True)
        size *= _WIDER


def to_bytes(text: str) -> bytes:
    """The bytes that `surrogateescape` decoding came from."""
    return text.encode("utf-8", "surrogateescape")


@lru_cache(maxsize=64)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode_as(raw: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    """A JSON object as a struct; members of another type than the struct's are left out.

    Returns:
        None when the bytes hold no object.
    """
    data = bytes(raw)
    if not data:
        return None
    try:
        return _decoder(kind).decode(data)  # type: ignore[no-any-return]
    except REFUSALS:
        return fill(kind, _loads(data))


def decode_list(raw: bytes | msgspec.Raw, kind: type[T]) -> list[T] | None:
    """A JSON array of objects as structs; None when the bytes hold no array.

    Strings inside a list of content blocks become text blocks; other values are left out.
    """
    data = bytes(raw)
    if not data:
        return None
    try:
        return _decoder(list[kind]).decode(data)  # type: ignore[valid-type,no-any-return]
    except REFUSALS:
        values = _loads(data)
    if isinstance(values, Deep):
        values = _items(values)
    if not isinstance(values, list):
        return None
    found: list[T] = []
    for value in values:
        item = fill(kind, value)
        if item is not None:
            found.append(item)
        elif isinstance(value, str) and issubclass(kind, Block):
            found.append(kind(type="text", text=value))
    return found


def decode_text(raw: bytes | msgspec.Raw) -> str | None:
    """A JSON string; None when the bytes hold anything else."""
    data = bytes(raw)
    if not data.lstrip().startswith(b'"'):
        return None
    try:
        return _decoder(str).decode(data)  # type: ignore[no-any-return]
    except REFUSALS:
        value = _loads(data)
        return value if isinstance(value, str) else None


def _loads(data: bytes) -> object:
    text = data.decode("utf-8", "surrogateescape").strip(" \t\r\n")
    found = value_at(text, 0)
    return None if found.broken or found.end < len(text) else found.value


def fill(kind: type[T], value: object) -> T | None:
    """A struct from a decoded object, member by member; None when it is no object."""
    if isinstance(value, Deep):
        value = _members(value)
    if not isinstance(value, dict):
        return None
    fields: dict[str, Any] = {}
    for name, outer, accepts in _fields(kind):
        if outer not in value:
            continue
        member = value[outer]
        if accepts is msgspec.Raw:
            fields[name] = _raw(member)
        elif isinstance(member, accepts) and (accepts is bool or not isinstance(member, bool)):
            fields[name] = member
    return kind(**fields)


def _raw(member: object) -> msgspec.Raw:
    if isinstance(member, msgspec.Raw):
        return member
    try:
        return msgspec.Raw(json.dumps(member).encode())
    except RecursionError:  # encoding needs a little more depth than decoding did
        return msgspec.Raw("".join(_flat(member)).encode())


def _flat(value: object) -> Iterator[str]:
    """The JSON text of a decoded value, without recursion."""
    todo: list[object] = [value]
    while todo:
        now = todo.pop()
        if isinstance(now, _Text):
            yield now
        elif isinstance(now, dict):
            yield "{"
            todo.append(_Text("}"))
            for place, (key, item) in enumerate(reversed(now.items())):
                todo += [_Text(","), item] if place else [item]
                todo.append(_Text(json.dumps(key) + ":"))
        elif isinstance(now, list):
            yield "["
            todo.append(_Text("]"))
            for place, item in enumerate(reversed(now)):
                todo += [_Text(","), item] if place else [item]
        else:
            yield json.dumps(now)


class _Text(str):
    """Finished JSON text among values still to be encoded."""

    __slots__ = ()


def _members(deep: Deep) -> dict[str, object] | None:
    """Scalars decoded, containers as their bytes; None when it is an array."""
    if not isinstance(deep.scanned, Scanned):
        return None
    return {
        member.key: _part(deep.data, member.start, member.end) for member in deep.scanned.members
    }


def _items(deep: Deep) -> list[object] | None:
    if not isinstance(deep.scanned, Items):
        return None
    found: list[object] = []
    for start, end in deep.scanned.spans:
        part = _part(deep.data, start, end)
        found.append(_loads(bytes(part)) if isinstance(part, msgspec.Raw) else part)
    return found


def _part(data: bytes, start: int, end: int) -> object:
    part = data[start:end]
    if part[:1] in {b"{", b"["}:
        return msgspec.Raw(part)
    return value_at(part.decode("utf-8", "surrogateescape"), 0).value


@lru_cache(maxsize=64)
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    """(attribute, JSON member, accepted type) of a struct's fields."""
    hints = get_type_hints(kind)
    found: list[tuple[str, str, Any]] = []
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        accepted = tuple(arg for arg in get_args(hint) or (hint,) if arg is not type(None))
        found.append(
            (field.name, field.encode_name, accepted[0] if len(accepted) == 1 else accepted)
        )
    return found
