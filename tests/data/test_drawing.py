"""Drawing: deterministic, disjoint, exchangeable, and honest about small or duplicated data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from optimum_cpp.data import (
    ROLES,
    DataRoles,
    DatasetSource,
    Ledger,
    Pool,
    RoleSizes,
    draw_calibration_roles,
    draw_roles,
    roles_from_datasets,
)
from optimum_cpp.errors import ConformalRoleLocked, DataError, UsageError

MakePool = Callable[..., Pool]
LABELS = ("animal", "plant", "rock")
SMALL = RoleSizes(10, 10, 10, 20)


def indices(roles: DataRoles) -> dict[str, tuple[int, ...]]:
    return {role: roles.manifest.roles[role].indices for role in ROLES}


def test_roles_have_their_sizes_and_share_no_row(make_pool: MakePool) -> None:
    roles = draw_roles(make_pool(60), SMALL, seed=0)
    assert roles.sizes == {"prune": 10, "val_cal": 5, "val_eval": 5, "conformal": 10, "test": 20}
    drawn = [row for rows in indices(roles).values() for row in rows]
    assert len(drawn) == len(set(drawn)) == 50 and set(drawn) <= set(range(60))
    assert roles.manifest.exceptions == ()


def test_examples_are_the_pools_rows(make_pool: MakePool) -> None:
    pool = make_pool(60)
    roles = draw_roles(pool, SMALL, seed=0)
    roles.unlock_conformal("sha256:x")
    for role in ROLES:
        examples = getattr(roles, role)
        assert examples.indices == roles.manifest.roles[role].indices
        assert examples.fingerprints == roles.manifest.roles[role].fingerprints
        for text, label, print_, row in zip(
            examples.texts, examples.labels, examples.fingerprints, examples.indices, strict=True
        ):
            assert (text, label, print_) == (pool.texts[row], pool.labels[row], pool.fingerprint(row))


def test_the_seed_decides_everything(make_pool: MakePool) -> None:
    pool = make_pool(60)
    assert draw_roles(pool, SMALL, seed=7).manifest == draw_roles(pool, SMALL, seed=7).manifest
    assert indices(draw_roles(pool, SMALL, seed=7)) != indices(draw_roles(pool, SMALL, seed=8))


def test_a_known_seed_gives_known_rows(make_pool: MakePool) -> None:
    # The same rows must come out on every machine and in every later version.
    drawn = indices(draw_roles(make_pool(60), SMALL, seed=5))
    assert drawn["conformal"] == (27, 31, 38, 26, 11, 29, 12, 57, 39, 41)
    assert drawn["prune"] == (5, 37, 21, 23, 0, 10, 14, 51, 53, 3)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, None])
def test_seeds_out_of_range(make_pool: MakePool, seed: Any) -> None:
    with pytest.raises(UsageError, match="seed"):
        draw_roles(make_pool(60), SMALL, seed=seed)


def test_membership_is_uniform_over_seeds(make_pool: MakePool) -> None:
    """Each row is as likely as any other in each role (chi-square, false alarm 1e-6 per role)."""
    pool, seeds = make_pool(40), 1500
    counts = {role: np.zeros(40) for role in ROLES}
    for seed in range(seeds):
        for role, rows in indices(draw_roles(pool, RoleSizes(6, 8, 6, 12), seed=seed)).items():
            counts[role][list(rows)] += 1
    for role, count in counts.items():
        share = count.sum() / (40 * seeds)
        # Rows of one draw exclude each other, which makes the covariance (40 / 39) (I - 1/40).
        statistic = np.sum((count - seeds * share) ** 2) / (seeds * share * (1 - share)) * 39 / 40
        assert stats.chi2.sf(statistic, 39) > 1e-6, role


def test_conformal_and_test_are_told_apart_at_random(make_pool: MakePool) -> None:
    """Given that a row is in one of the two, it is conformal with the same chance whatever its position."""
    pool, seeds = make_pool(40), 1500
    conformal, either = np.zeros(40), np.zeros(40)
    for seed in range(seeds):
        drawn = indices(draw_roles(pool, RoleSizes(6, 8, 6, 12), seed=seed))
        conformal[list(drawn["conformal"])] += 1
        either[[*drawn["conformal"], *drawn["test"]]] += 1
    deviation = (conformal - either / 3) ** 2 / (either * (1 / 3) * (2 / 3))
    assert stats.chi2.sf(deviation.sum(), 40) > 1e-6


def test_a_small_pool_is_shared_out_and_said_so(make_pool: MakePool) -> None:
    roles = draw_roles(make_pool(1000), RoleSizes(), seed=0)
    assert roles.sizes == {"prune": 126, "val_cal": 63, "val_eval": 63, "conformal": 126, "test": 622}
    assert "1000 usable rows, fewer than the 8072 requested" in roles.manifest.exceptions[0]


def test_test_takes_all_that_is_left_on_request(make_pool: MakePool) -> None:
    assert draw_roles(make_pool(9000), RoleSizes(test="all"), seed=0).sizes["test"] == 9000 - 3072


def test_no_test_rows_on_request(make_pool: MakePool) -> None:
    roles = draw_roles(make_pool(60), RoleSizes(10, 10, 10, 0), seed=0)
    assert len(roles.test) == 0 and roles.manifest.roles["test"].indices == ()


def test_an_empty_role_is_an_error(make_pool: MakePool) -> None:
    with pytest.raises(DataError, match="Role prune would be empty"):
        draw_roles(make_pool(7), RoleSizes(), seed=0)


def test_roles_keep_to_their_splits(make_pool: MakePool) -> None:
    pool = make_pool(validation=30, train=20, test=40)
    splits = {"prune": "validation", "val": "validation+train", "conformal": "test", "test": "test"}
    roles = draw_roles(pool, SMALL, seed=1, role_splits=splits)
    found = {role: {pool.row_splits[row] for row in rows} for role, rows in indices(roles).items()}
    assert found["prune"] == {"validation"} and found["conformal"] == found["test"] == {"test"}
    assert found["val_cal"] | found["val_eval"] == {"validation", "train"}
    assert roles.manifest.exceptions == ()


def test_scarce_splits_are_shared_out_among_their_own_roles(make_pool: MakePool) -> None:
    splits = {"prune": "train", "val": "train", "conformal": "test", "test": "test"}
    roles = draw_roles(make_pool(train=40, test=15), SMALL, seed=1, role_splits=splits)
    assert roles.sizes == {"prune": 10, "val_cal": 5, "val_eval": 5, "conformal": 5, "test": 10}
    assert roles.manifest.exceptions == (
        "Split test has 15 usable rows, fewer than the 30 requested, so they are shared out: conformal 5, test 10.",
    )


def test_a_role_whose_split_was_used_up_is_named(make_pool: MakePool) -> None:
    splits = {"prune": "train", "val": "train+test", "conformal": "train+test", "test": "train+test"}
    with pytest.raises(DataError, match=r"Role prune needs 10 rows of split train, but only \d are left"):
        draw_roles(make_pool(train=10, test=90), SMALL, seed=0, role_splits=splits)


def test_splits_that_the_pool_does_not_have(make_pool: MakePool) -> None:
    splits = {"prune": "dev", "val": "train", "conformal": "train", "test": "train"}
    with pytest.raises(DataError, match=r"Role prune .* split 'dev', but the pool's splits are train"):
        draw_roles(make_pool(train=60), SMALL, seed=0, role_splits=splits)
    with pytest.raises(UsageError, match="exchangeable"):
        draw_roles(
            make_pool(train=60, test=60),
            SMALL,
            seed=0,
            role_splits=splits | {"prune": "train", "test": "test"},
        )


def with_duplicates(make_pool: MakePool) -> Pool:
    texts = [f"text number {row % 40} of the pool" + "  " * (row >= 40) for row in range(60)]
    return make_pool(texts=texts, labels=[row % 40 % 3 if row != 59 else 0 for row in range(60)])


@pytest.mark.parametrize("seed", range(20))
def test_dropped_duplicates_are_in_no_role(make_pool: MakePool, seed: int) -> None:
    roles = draw_roles(with_duplicates(make_pool), RoleSizes(8, 8, 8, 16), seed=seed)
    assert sorted(row for rows in indices(roles).values() for row in rows) == list(range(40))
    found = roles.manifest.duplicates
    assert (found.policy, found.found, found.dropped, found.contradictory) == ("drop", 20, 20, 1)
    assert found.near == {}, "texts of five other words each are not near duplicates"


def test_reported_duplicates_stay(make_pool: MakePool) -> None:
    roles = draw_roles(with_duplicates(make_pool), RoleSizes(10, 10, 10, 30), seed=0, on_duplicates="report")
    drawn = [row for rows in indices(roles).values() for row in rows]
    assert sorted(drawn) == list(range(60)), "still no row is in two roles"
    assert roles.manifest.duplicates.found == 20 and roles.manifest.duplicates.dropped == 0
    assert sum(roles.manifest.duplicates.near.values()) > 0


def test_duplicates_as_an_error_name_their_rows(make_pool: MakePool) -> None:
    with pytest.raises(DataError, match=r"20 rows repeat .*Row 40 of split 'train' repeats Row 0 of split 'train'"):
        draw_roles(with_duplicates(make_pool), SMALL, seed=0, on_duplicates="error")


def test_near_duplicates_across_roles_are_counted(make_pool: MakePool) -> None:
    long = " ".join(f"word{number}" for number in range(30))
    texts = [f"{long} ending {row}" for row in range(50)]
    near = draw_roles(make_pool(texts=texts), SMALL, seed=0).manifest.duplicates.near
    assert near["conformal/test"] == 10 * 20 and near["prune/val_cal"] == 10 * 5
    assert list(near)[:2] == ["prune/val_cal", "prune/val_eval"] and len(near) == 10


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text(alphabet="ab ", min_size=1).filter(str.strip), min_size=1, max_size=60),
    policy=st.sampled_from(["drop", "report"]),
    seed=st.integers(0, 2**32),
)
def test_no_row_is_ever_in_two_roles(texts: Sequence[str], policy: str, seed: int) -> None:
    source = DatasetSource("toy", None, ("train",), "text", "label", "sha256:0")
    pool = Pool(tuple(texts), (0,) * len(texts), ("x", "y"), ("train",) * len(texts), source)
    try:
        roles = draw_roles(pool, RoleSizes(4, 4, 4, 8), seed=seed, on_duplicates=policy)
    except DataError as error:
        assert "would be empty" in str(error)
        return
    drawn = [row for rows in indices(roles).values() for row in rows]
    assert len(drawn) == len(set(drawn))
    if policy == "drop":
        prints = [value for role in ROLES for value in roles.manifest.roles[role].fingerprints]
        assert len(prints) == len(set(prints))


def table(prefix: str, count: int) -> datasets.Dataset:
    texts = [f"{prefix} text {row}" for row in range(count)]
    return datasets.Dataset.from_dict({"text": texts, "label": [LABELS[row % 3] for row in range(count)]})


def given_roles(**changes: Any) -> DataRoles:
    arguments: dict[str, Any] = {
        "prune": table("prune", 6),
        "validation": table("val", 8),
        "conformal": table("conformal", 5),
        "test": table("test", 7),
        "seed": 0,
    }
    return roles_from_datasets(**arguments | changes)


def test_given_data_sets_are_the_roles() -> None:
    roles = given_roles()
    assert roles.sizes == {"prune": 6, "val_cal": 4, "val_eval": 4, "conformal": 5, "test": 7}
    assert roles.label_names == LABELS
    assert roles.prune.texts == tuple(f"prune text {row}" for row in range(6))
    assert roles.test.texts == tuple(f"test text {row}" for row in range(7))
    assert {*roles.val_cal.texts, *roles.val_eval.texts} == {f"val text {row}" for row in range(8)}
    with pytest.raises(ConformalRoleLocked):
        _ = roles.conformal
    roles.unlock_conformal("sha256:x")
    assert roles.conformal.texts == tuple(f"conformal text {row}" for row in range(5))
    assert roles.manifest.dataset.splits == ("prune", "validation", "conformal", "test")
    assert roles.manifest.duplicates.policy == "error"


def test_validation_is_halved_by_the_seed() -> None:
    assert given_roles(seed=1).val_cal == given_roles(seed=1).val_cal
    assert len({given_roles(seed=seed).val_cal.texts for seed in range(5)}) > 1
    odd = given_roles(validation=table("val", 9))
    assert (odd.sizes["val_cal"], odd.sizes["val_eval"]) == (4, 5)


def test_test_may_be_left_out() -> None:
    assert given_roles(test=None).sizes["test"] == 0


def test_label_strings_of_all_data_sets_make_the_label_space() -> None:
    extra = datasets.Dataset.from_dict({"text": ["new one"], "label": ["air"]})
    assert given_roles(test=extra).label_names == ("air", *LABELS)


def test_duplicates_across_given_data_sets_are_an_error() -> None:
    overlapping = table("prune", 2)
    with pytest.raises(DataError, match=r"2 rows repeat .*Row 0 of split 'conformal' repeats Row 0 of split 'prune'"):
        given_roles(conformal=overlapping)


def test_dropping_prefers_prune_and_validation() -> None:
    mixed = datasets.concatenate_datasets([table("prune", 2), table("val", 2), table("conformal", 5)])
    roles = given_roles(conformal=mixed, on_duplicates="drop")
    assert roles.sizes["prune"] == 6 and roles.sizes["conformal"] == 5
    assert roles.manifest.duplicates.dropped == 4


def test_of_a_text_in_conformal_and_test_a_random_copy_stays() -> None:
    shared = table("shared", 40)
    sizes = [given_roles(conformal=shared, test=shared, seed=seed, on_duplicates="drop").sizes for seed in range(40)]
    kept = np.array([size["conformal"] for size in sizes])
    assert all(size["conformal"] + size["test"] == 40 for size in sizes)
    # 1600 fair coins: six standard deviations are 120.
    assert abs(kept.sum() - 800) < 120


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"prune": table("prune", 6).select([])}, "Role prune would be empty"),
        ({"validation": table("val", 1)}, "Role val_cal would be empty"),
        ({"test": table("test", 3).select([])}, "Role test would be empty"),
        (
            {"conformal": datasets.DatasetDict(a=table("a", 1), b=table("b", 1))},
            "conformal data set .* has a, b",
        ),
    ],
)
def test_given_data_sets_that_cannot_serve(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        given_roles(**changes)


def test_calibration_roles_on_new_data(make_pool: MakePool) -> None:
    pool = make_pool(60)
    used = Ledger().adding("prune", ["f" * 64])
    roles = draw_calibration_roles(pool, 20, 30, seed=0, used=used, val_rows=10)
    assert roles.sizes == {"prune": 0, "val_cal": 10, "val_eval": 0, "conformal": 20, "test": 30}
    assert roles.manifest.ledger == used
    with pytest.raises(ConformalRoleLocked):
        _ = roles.conformal


def test_calibration_roles_share_out_a_small_pool(make_pool: MakePool) -> None:
    roles = draw_calibration_roles(make_pool(600), 1000, "all", seed=0, used=Ledger())
    assert roles.sizes == {"prune": 0, "val_cal": 0, "val_eval": 0, "conformal": 100, "test": 500}
    assert "600 usable rows, fewer than the 6000 requested" in roles.manifest.exceptions[0]


def test_calibration_refuses_rows_that_were_used(make_pool: MakePool) -> None:
    pool = make_pool(60)
    first = draw_roles(pool, SMALL, seed=0)
    sentence = (
        r"50 of the 60 rows were already used "
        r"\(prune: 10, val_cal: 5, val_eval: 5, conformal: 10, test: 20\)"
    )
    with pytest.raises(DataError, match=sentence):
        draw_calibration_roles(pool, 20, 30, seed=0, used=first.manifest.used())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0, 10), "conformal_rows"),
        ((10, -1), "test_rows"),
        ((10, "some"), "test_rows"),
    ],
)
def test_calibration_sizes_out_of_range(make_pool: MakePool, arguments: tuple[Any, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        draw_calibration_roles(make_pool(60), *arguments, seed=0, used=Ledger())
