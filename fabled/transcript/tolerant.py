"""Decoding what strict decoders refuse, without losing a byte or inventing one.

msgspec, typed, is the fast way; invalid UTF-8, lone surrogates, NaN, a member of an
unexpected type or 5,000 levels of brackets make it give up. Here the standard library
reads the same bytes through `surrogateescape`, and the shallow scanner what is too deep.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from fabled.transcript.envelope import Block
from fabled.transcript.shallow import Scanned, scan_object

T = TypeVar("T", bound=msgspec.Struct)

REFUSALS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for bytes it does not take."""


def _integer(text: str) -> int | float:
    # The interpreter refuses to convert longer ones; such a number identifies nothing.
    return int(text) if len(text) < 4000 else float("inf")


_DECODER = json.JSONDecoder(parse_int=_integer)


class Value(NamedTuple):
    """One JSON value in a text, or the place where there is none.

    Attributes:
        value: The decoded value; the shallow members of an object that is too deep.
        end: Index just past it.
        broken: The text is no JSON there; `end` is where that showed.
    """

    value: object
    end: int
    broken: bool = False


def value_at(text: str, at: int) -> Value:
    """The JSON value that begins at an index; never raises, whatever the text."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as fault:
        return Value(None, max(fault.pos, at + 1), broken=True)
    except RecursionError:
        return _deep(text, at)
    return Value(value, end)


def _deep(text: str, at: int) -> Value:
    data = to_bytes(text[at:])
    scanned = scan_object(data)
    if scanned is None:
        return Value(None, len(text), broken=True)
    end = at + len(data[: scanned.end].decode("utf-8", "surrogateescape"))
    return Value(Deep(data, scanned), end)


class Deep(NamedTuple):
    """An object too deep to be built: its bytes and where its members are."""

    data: bytes
    scanned: Scanned


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
    return msgspec.Raw(json.dumps(member).encode())


def _members(deep: Deep) -> dict[str, object]:
    """Scalars decoded, containers as their bytes."""
    found: dict[str, object] = {}
    for member in deep.scanned.members:
        key = value_at(member.key.decode("utf-8", "surrogateescape"), 0).value
        data = deep.data[member.start : member.end]
        held: object = msgspec.Raw(data)
        if data[:1] not in (b"{", b"["):
            held = value_at(data.decode("utf-8", "surrogateescape"), 0).value
        found[str(key)] = held
    return found


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
