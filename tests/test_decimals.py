"""Decimals stay as they were written, and hostile ones are refused before anything is computed from them."""

from decimal import Decimal
from fractions import Fraction

import pytest

from optimum_cpp.decimals import decimal_string
from optimum_cpp.errors import UsageError


@pytest.mark.parametrize("value", ["0.10", " .5 ", "+3.", "1e-3", "-2E+10", 0.1, 7, Decimal("0.250")])
def test_what_was_written_is_kept_and_exact(value: object) -> None:
    text = decimal_string("alpha", value)
    assert text == str(value).strip()
    assert Fraction(text) == Fraction(str(value).strip())


@pytest.mark.parametrize("value", ["", "half", "nan", "inf", "1/3", "0.1_0", "\u0661", "1e-99999999", "0" * 41, None])
def test_all_else_is_refused_by_its_option(value: object) -> None:
    with pytest.raises(UsageError, match="`alpha` to be a decimal number"):
        decimal_string("alpha", value)
