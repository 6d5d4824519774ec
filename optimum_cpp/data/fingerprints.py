"""What identifies a row: an exact fingerprint, and its folded text, which ignores case and spacing."""

from __future__ import annotations

import hashlib
import unicodedata


def fingerprint(text: str, label_name: str) -> str:
    """SHA-256 of one row, as 64 lower-case hex digits.

    The hashed bytes are, for the text and then for the label name: the number of UTF-8 bytes as an
    8-byte big-endian unsigned integer, followed by those bytes. The lengths keep two rows apart that
    would agree when text and label are simply joined (`"ab", "c"` and `"a", "bc"`). A lone surrogate,
    which UTF-8 has no bytes for, is hashed as the three bytes that its code point would take.
    """
    hasher = hashlib.sha256()
    for part in (text, label_name):
        encoded = part.encode("utf-8", errors="surrogatepass")
        hasher.update(len(encoded).to_bytes(8, "big"))
        hasher.update(encoded)
    return hasher.hexdigest()


def rows_digest(fingerprints: list[str]) -> str:
    """`"sha256:"` and the SHA-256 of the rows' raw 32-byte fingerprints, joined in order."""
    hasher = hashlib.sha256()
    for value in fingerprints:
        hasher.update(bytes.fromhex(value))
    return "sha256:" + hasher.hexdigest()


def folded(text: str) -> str:
    """The text in which two duplicates agree: NFKC, then case-folded, then each run of whitespace as one
    space with none at the ends."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def text_digest(text: str) -> str:
    """SHA-256 of the folded text's UTF-8 bytes, as 64 lower-case hex digits; surrogates as in `fingerprint`."""
    return hashlib.sha256(folded(text).encode("utf-8", errors="surrogatepass")).hexdigest()
