"""Decimal numbers as text, from which counts and ranks are computed exactly."""

from __future__ import annotations

import re
from typing import Any

from .errors import UsageError


def decimal_string(name: str, value: Any) -> str:
    """`value` as a finite decimal string; the exact counts are computed from this string."""
    text = str(value).strip()
    # The length and the exponent are bounded: 1e-99999999 is a number of a hundred million digits.
    if len(text) > 40 or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?", text, flags=re.ASCII):
        raise UsageError(f"Expected argument `{name}` to be a decimal number, but got {text[:60]!r}.")
    return text
