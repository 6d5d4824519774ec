"""The guardrail rule and Learn-Then-Test on hand-made tables, branch by branch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from optimum_cpp.errors import UsageError
from optimum_cpp.selection import Candidate, Selection, learn_then_test, select_by_guardrail


def grid(*rows: tuple[str, int, int, int], n: int = 1000) -> list[Candidate]:
    """Candidates from (lambda, covered, size_sum, correct) on n rows."""
    return [
        Candidate(lam=lam, rows=n, covered=covered, size_sum=size, correct=correct)
        for lam, covered, size, correct in rows
    ]


def reasons(selection: Selection) -> list[str]:
    return [decision.reason for decision in selection.decisions]


def eligible(selection: Selection) -> list[bool]:
    return [decision.eligible for decision in selection.decisions]


def test_the_smallest_set_wins() -> None:
    result = select_by_guardrail(grid(("0", 900, 4000, 650), ("0.1", 900, 3520, 650), ("0.3", 900, 3600, 700)), "0.1")
    assert (result.lam, result.rule) == ("0.1", "guardrail")
    assert [decision.lam for decision in result.decisions] == ["0", "0.1", "0.3"]
    assert eligible(result) == [True, True, True]
    assert reasons(result) == [
        "eligible; size 4; not chosen: more than 0.02 above 3.52 (lambda=0.1)",
        "eligible; size 3.52; chosen: smallest set",
        "eligible; size 3.6; not chosen: more than 0.02 above 3.52 (lambda=0.1)",
    ]


def test_lambda_0_competes_when_it_is_eligible() -> None:
    result = select_by_guardrail(grid(("0", 900, 3000, 650), ("0.1", 900, 3500, 700)), "0.1")
    assert result.lam == "0"
    assert reasons(result)[0] == "eligible; size 3; chosen: smallest set"


def test_lambda_0_that_misses_coverage_does_not_compete() -> None:
    result = select_by_guardrail(grid(("0", 879, 1000, 650), ("0.1", 900, 3500, 650)), "0.1")
    assert result.lam == "0.1"
    assert reasons(result)[0] == "not eligible: coverage 0.879 is more than 0.02 below 0.9"


def test_accuracy_of_exactly_two_hundredths_less_is_eligible() -> None:
    assert 0.23 - 0.02 > 0.21  # floating point would refuse the second candidate
    result = select_by_guardrail(grid(("0", 90, 400, 23), ("0.1", 90, 300, 21), ("0.3", 90, 200, 20), n=100), "0.1")
    assert result.lam == "0.1"
    assert eligible(result) == [True, True, False]
    assert reasons(result)[2] == "not eligible: accuracy 0.2 is more than 0.02 below 0.23 (lambda=0)"


def test_accuracy_is_one_sided() -> None:
    result = select_by_guardrail(grid(("0", 900, 4000, 100), ("0.1", 900, 3000, 1000)), "0.1")
    assert result.lam == "0.1"


def test_coverage_of_exactly_two_hundredths_less_is_eligible() -> None:
    result = select_by_guardrail(grid(("0", 82, 400, 60), ("0.1", 80, 300, 60), ("0.3", 79, 200, 60), n=100), "0.18")
    assert result.lam == "0.1"
    assert eligible(result) == [True, True, False]
    assert reasons(result)[2] == "not eligible: coverage 0.79 is more than 0.02 below 0.82"


def test_higher_coverage_is_eligible() -> None:
    assert select_by_guardrail(grid(("0", 900, 4000, 650), ("0.5", 1000, 3000, 650)), "0.1").lam == "0.5"


def test_both_failures_are_named() -> None:
    result = select_by_guardrail(grid(("0", 900, 4000, 650), ("0.1", 850, 3000, 610), ("0.3", 900, 3900, 650)), "0.1")
    assert reasons(result)[1] == (
        "not eligible: accuracy 0.61 is more than 0.02 below 0.65 (lambda=0) and "
        "coverage 0.85 is more than 0.02 below 0.9"
    )


def test_sizes_up_to_two_hundredths_apart_tie_and_accuracy_decides() -> None:
    result = select_by_guardrail(
        grid(("0", 900, 4000, 650), ("0.1", 900, 3000, 640), ("0.3", 900, 3020, 660), ("0.5", 900, 3021, 999)),
        "0.1",
    )
    assert result.lam == "0.3"
    assert reasons(result)[1:] == [
        "eligible; size 3; not chosen: sizes tie, accuracy below 0.66 (lambda=0.3)",
        "eligible; size 3.02; chosen: sizes tie, highest accuracy",
        "eligible; size 3.021; not chosen: more than 0.02 above 3 (lambda=0.1)",
    ]


def test_the_smaller_lambda_decides_last_whatever_the_order() -> None:
    rows = [("0", 900, 4000, 650), ("0.1", 900, 3010, 650), ("0.3", 900, 3000, 650), ("0.5", 900, 3005, 640)]
    for order in itertools.permutations(rows):
        result = select_by_guardrail(grid(*order), "0.1")
        assert result.lam == "0.1"
        by_lam = {decision.lam: decision.reason for decision in result.decisions}
        assert list(by_lam) == [row[0] for row in order]
        assert by_lam["0.1"].endswith("chosen: sizes and accuracies tie, smallest lambda")
        assert by_lam["0.3"].endswith("not chosen: sizes and accuracies tie, lambda=0.1 is smaller")
        assert by_lam["0.5"].endswith("not chosen: sizes tie, accuracy below 0.65 (lambda=0.1)")


def test_lambdas_are_compared_as_numbers() -> None:
    rows = [("0", 900, 4000, 650), ("0.5", 900, 3000, 650), ("5e-2", 900, 3000, 650)]
    assert select_by_guardrail(grid(*rows), "0.1").lam == "5e-2"


def test_an_ineligible_candidate_does_not_set_the_smallest_size() -> None:
    result = select_by_guardrail(
        grid(("0", 900, 4000, 650), ("0.1", 800, 2990, 650), ("0.3", 900, 3015, 700), ("0.5", 900, 3000, 650)),
        "0.1",
    )
    assert result.lam == "0.3"


def test_no_eligible_nonzero_lambda_leaves_an_eligible_0() -> None:
    result = select_by_guardrail(grid(("0.1", 900, 3000, 600), ("0", 900, 4000, 650)), "0.1")
    assert result.lam == "0"
    assert reasons(result) == [
        "not eligible: accuracy 0.6 is more than 0.02 below 0.65 (lambda=0)",
        "eligible; size 4; chosen: no nonzero lambda is eligible",
    ]


def test_nothing_eligible_leaves_0_all_the_same() -> None:
    result = select_by_guardrail(grid(("0.0", 850, 4000, 650), ("0.1", 850, 3000, 650)), "0.1")
    assert result.lam == "0.0"
    assert eligible(result) == [False, False]
    assert reasons(result)[0] == (
        "not eligible: coverage 0.85 is more than 0.02 below 0.9; chosen: no nonzero lambda is eligible"
    )


def test_a_grid_of_0_alone() -> None:
    assert select_by_guardrail(grid(("0", 900, 4000, 650)), "0.1").lam == "0"


GOOD_ROW = ("0", 900, 4000, 650)


@pytest.mark.parametrize("choose", ["guardrail", "learn_then_test"])
@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "lambda=0.*no candidates"),
        (grid(("0.1", 900, 4000, 650)), "lambda=0.*but got 0.1"),
        (grid(GOOD_ROW, GOOD_ROW), "once, but got 0, 0"),
        (grid(GOOD_ROW, ("0.1", 900, 4000, 650), ("0.10", 900, 4000, 650)), "once, but got 0, 0.1, 0.10"),
        (grid(GOOD_ROW) + grid(("0.1", 90, 400, 65), n=100), r"1000 \(lambda=0\), 100 \(lambda=0.1\)"),
        (grid(GOOD_ROW, ("1.1", 900, 4000, 650)), r"\[0, 1\], but got 1.1"),
        (grid(GOOD_ROW, ("-0.1", 900, 4000, 650)), r"\[0, 1\], but got -0.1"),
        (grid(GOOD_ROW, ("nan", 900, 4000, 650)), "`lam`"),
        (grid(("0", 0, 0, 0), n=0), "some rows"),
        (grid(("0", 1001, 4000, 650)), "counts of lambda=0"),
        (grid(("0", -1, 4000, 650)), "counts of lambda=0"),
        (grid(("0", 900, 4000, 1001)), "counts of lambda=0"),
        (grid(("0", 900, 4000, -1)), "counts of lambda=0"),
        (grid(("0", 900, 899, 650)), "size_sum"),
    ],
)
def test_bad_grids_are_refused(candidates: list[Candidate], message: str, choose: str) -> None:
    with pytest.raises(UsageError, match=message):
        if choose == "guardrail":
            select_by_guardrail(candidates, "0.1")
        else:
            learn_then_test(candidates, "0.5", "0.1")


@pytest.mark.parametrize("alpha", ["0", "1", "-1", "nan", "tenth"])
def test_bad_alpha_is_refused(alpha: str) -> None:
    with pytest.raises(UsageError, match="`alpha`"):
        select_by_guardrail(grid(GOOD_ROW), alpha)


def test_learn_then_test_takes_the_smallest_accepted() -> None:
    # Errors .35, .38, .41, .2 against risk .4 with n = 1000: p = e^-5, e^-0.8, 1, e^-80; bound .025.
    result = learn_then_test(
        grid(("0", 900, 4000, 650), ("0.1", 900, 1000, 620), ("0.3", 900, 1000, 590), ("0.5", 900, 4500, 800)),
        "0.4",
        "0.1",
    )
    assert (result.lam, result.rule) == ("0", "learn_then_test")
    assert eligible(result) == [True, False, False, True]
    assert reasons(result) == [
        f"accepted: p {math.exp(-5):.3g} <= 0.025; size 4; chosen: smallest set",
        f"not accepted: p {math.exp(-0.8):.3g} > 0.025",
        "not accepted: p 1 > 0.025",
        f"accepted: p {math.exp(-80):.3g} <= 0.025; size 4.5; not chosen: above 4 (lambda=0)",
    ]


def test_learn_then_test_divides_delta_by_the_size_of_the_grid() -> None:
    # p = e^-3.2 = .041 on both: above .05 / 2, below .05.
    rows = [("0", 900, 4000, 640), ("0.5", 900, 3000, 640)]
    assert eligible(learn_then_test(grid(*rows), "0.4", "0.05")) == [False, False]
    assert eligible(learn_then_test(grid(rows[0]), "0.4", "0.05")) == [True]
    assert eligible(learn_then_test(grid(*rows), "0.4", "0.1")) == [True, True]


def test_learn_then_test_compares_sizes_exactly_then_accuracy_then_lambda() -> None:
    rows = [("0", 900, 3001, 900), ("0.3", 900, 3000, 700), ("0.1", 900, 3000, 700), ("0.5", 900, 3000, 690)]
    result = learn_then_test(grid(*rows), "0.4", "0.1")
    assert result.lam == "0.1"
    assert [reason.split("; ")[-1] for reason in reasons(result)] == [
        "not chosen: above 3 (lambda=0.3)",
        "not chosen: sizes and accuracies tie, lambda=0.1 is smaller",
        "chosen: sizes and accuracies tie, smallest lambda",
        "not chosen: sizes tie, accuracy below 0.7 (lambda=0.1)",
    ]


def test_learn_then_test_accepts_nothing_and_says_so() -> None:
    result = learn_then_test(grid(("0", 900, 4000, 600), ("0.1", 900, 3000, 600)), "0.4", "0.1")
    assert result.lam == "0"
    assert reasons(result) == [
        "not accepted: p 1 > 0.05; chosen: no lambda is accepted, so the risk is not bounded",
        "not accepted: p 1 > 0.05",
    ]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"risk": "0", "delta": "0.1"}, "risk"),
        ({"risk": "1", "delta": "0.1"}, "risk"),
        ({"risk": "low", "delta": "0.1"}, "risk"),
        ({"risk": "0.4", "delta": "0"}, "delta"),
        ({"risk": "0.4", "delta": "1"}, "delta"),
    ],
)
def test_learn_then_test_refuses_bad_options(options: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=f"`{name}`"):
        learn_then_test(grid(GOOD_ROW), **options)
