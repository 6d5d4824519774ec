"""Fingerprints keep different rows apart; folded texts bring equal ones together."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.data.fingerprints import fingerprint, folded, rows_digest


def test_the_hashed_bytes_are_the_documented_ones() -> None:
    expected = b"\x00" * 7 + b"\x05" + b"na\xc3\xafv" + b"\x00" * 7 + b"\x01" + b"a"
    assert fingerprint("naïv", "a") == hashlib.sha256(expected).hexdigest()
    assert fingerprint("", "") == hashlib.sha256(b"\x00" * 16).hexdigest()


@settings(deadline=None)
@given(st.text(min_size=1), st.text(), st.data())
def test_moving_characters_between_text_and_label_changes_the_fingerprint(
    text: str, label: str, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(text) - 1))
    assert fingerprint(text, label) != fingerprint(text[:cut], text[cut:] + label)


@settings(deadline=None)
@given(st.text(), st.text(), st.text(), st.text())
def test_equal_only_for_equal_rows(text: str, label: str, other_text: str, other_label: str) -> None:
    same = (text, label) == (other_text, other_label)
    assert (fingerprint(text, label) == fingerprint(other_text, other_label)) == same


@settings(deadline=None)
@given(st.text(alphabet="ab\x00\x08", max_size=12), st.text(alphabet="ab\x00\x08", max_size=12))
def test_length_bytes_inside_a_text_do_not_imitate_a_prefix(text: str, label: str) -> None:
    joined = text + "\x00" * 7 + chr(len(label)) + label
    assert fingerprint(joined, "") != fingerprint(text, label)


def test_a_lone_surrogate_has_a_fingerprint() -> None:
    assert fingerprint("\ud800", "a") != fingerprint("\ud801", "a")


def test_rows_digest_depends_on_rows_and_order() -> None:
    one, two = fingerprint("one", "a"), fingerprint("two", "a")
    raw = bytes.fromhex(one) + bytes.fromhex(two)
    assert rows_digest([one, two]) == "sha256:" + hashlib.sha256(raw).hexdigest()
    assert rows_digest([one, two]) != rows_digest([two, one])


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Card  arrival\n", " card arrival"),
        ("STRASSE", "straße"),
        ("ﬁne", "fine"),
        ("cafe\u0301", "CAFÉ"),
        ("full\u3000width \uff21\uff22", "full width ab"),
        ("no\u00a0break", "no break"),
    ],
)
def test_folding_ignores_case_form_and_spacing(text: str, other: str) -> None:
    assert folded(text) == folded(other)


@pytest.mark.parametrize(("text", "other"), [("card arrival", "cardarrival"), ("résumé", "resume"), ("a.", "a")])
def test_folding_keeps_words_accents_and_punctuation(text: str, other: str) -> None:
    assert folded(text) != folded(other)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(max_codepoint=0x2FFF)), st.text(alphabet=" \t\n\u3000", min_size=1))
def test_folding_ignores_surrounding_space(text: str, space: str) -> None:
    assert folded(space + text + space) == folded(text)
