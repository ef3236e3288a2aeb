"""Ids in short form and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fabled.transcript.identity import bare, clean, pack, unpack

CANONICAL = "0b1c2d3e-0000-4000-8000-00000000abcd"


def test_canonical_uuid_takes_sixteen_bytes():
    """What the client writes is stored in its shortest form."""
    assert pack(CANONICAL) == bytes.fromhex(CANONICAL.replace("-", ""))


def test_odd_uuid_stays_text():
    """An id that is no canonical uuid is kept as written, also one that differs by case."""
    assert pack(CANONICAL.upper()) == CANONICAL.upper()
    assert pack("my-id") == "my-id"


@given(st.one_of(st.text(), st.uuids().map(str)))
def test_pack_is_undone_by_unpack(text):
    """No two ids share a form."""
    assert unpack(pack(text)) == text


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_text_can_always_be_stored(text):
    """Lone surrogates are replaced; all other text comes back as it was."""
    stored = clean(text).encode("utf-8")
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert stored.decode() == text


def test_bare_record_is_named_by_file_and_place():
    """A record without uuid has an address."""
    assert bare("0b1c", 17) == "0b1c@17"
