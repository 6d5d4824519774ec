"""The lock on the conformal role, by trying every way to read; and roles drawn again from a manifest."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import pickle
import pprint
from collections.abc import Callable
from typing import Any

import pytest

from optimum_cpp.data import DataRoles, Pool, RoleSizes, draw_roles, roles_from_manifest
from optimum_cpp.errors import ConformalRoleLocked, DataError, UsageError

MakePool = Callable[..., Pool]


@pytest.fixture
def pool(make_pool: MakePool) -> Pool:
    return make_pool(60)


@pytest.fixture
def roles(pool: Pool) -> DataRoles:
    return draw_roles(pool, RoleSizes(10, 10, 10, 20), seed=3)


def conformal_texts(pool: Pool, roles: DataRoles) -> list[str]:
    return [pool.texts[row] for row in roles.manifest.roles["conformal"].indices]


def test_reading_before_the_freeze_raises_and_says_what_to_do(roles: DataRoles) -> None:
    with pytest.raises(ConformalRoleLocked, match=r"locked until the model is frozen.*val_cal and val_eval"):
        _ = roles.conformal
    with pytest.raises(ConformalRoleLocked):
        getattr(roles, "conformal", None)
    with pytest.raises(ConformalRoleLocked):
        hasattr(roles, "conformal")


def shown(value: object) -> str:
    printed = io.StringIO()
    pprint.pprint(value, stream=printed)
    return " ".join((repr(value), str(value), printed.getvalue()))


@pytest.mark.parametrize(
    "look",
    [
        shown,
        lambda roles: shown(vars(roles)),
        lambda roles: shown(roles.__dict__.values()),
        lambda roles: shown([getattr(value, "__dict__", value) for value in vars(roles).values()]),
        lambda roles: shown(roles._conformal),
        lambda roles: shown([getattr(roles._conformal, name) for name in type(roles._conformal).__slots__]),
        lambda roles: shown(roles.manifest) + json.dumps(roles.manifest.to_dict()),
        lambda roles: shown(dataclasses.asdict(roles.manifest)),
        lambda roles: shown(roles.sizes),
        lambda roles: shown(copy.copy(roles)),
    ],
)
def test_looking_at_the_roles_does_not_show_conformal_texts(
    pool: Pool, roles: DataRoles, look: Callable[[DataRoles], str]
) -> None:
    seen = look(roles)
    assert not any(text in seen for text in conformal_texts(pool, roles))


@pytest.mark.parametrize(
    "take",
    [
        pickle.dumps,
        copy.deepcopy,
        lambda roles: pickle.dumps(roles._conformal),
        lambda roles: pickle.dumps(vars(roles), protocol=0),
        lambda roles: copy.copy(roles._conformal),
        lambda roles: copy.copy(roles).conformal,
    ],
)
def test_the_conformal_rows_do_not_leave_by_copies(roles: DataRoles, take: Callable[[Any], Any]) -> None:
    with pytest.raises(ConformalRoleLocked):
        take(roles)


def test_there_is_nothing_to_iterate_or_index(roles: DataRoles) -> None:
    with pytest.raises(TypeError):
        iter(roles)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        vars(roles._conformal)
    with pytest.raises(TypeError):
        len(roles._conformal)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        roles.conformal = roles.test  # type: ignore[misc]


def test_the_locked_object_shows_its_count(roles: DataRoles) -> None:
    assert repr(roles) == "DataRoles(prune=10, val_cal=5, val_eval=5, conformal=10, test=20, locked)"
    assert repr(roles._conformal) == "<conformal role, 10 rows, locked>"
    assert roles.sizes["conformal"] == 10


def test_the_freeze_unlocks_it(pool: Pool, roles: DataRoles) -> None:
    roles.unlock_conformal("sha256:a")
    assert list(roles.conformal.texts) == conformal_texts(pool, roles)
    assert roles.conformal.indices == roles.manifest.roles["conformal"].indices
    assert roles.frozen_digest == "sha256:a"
    assert "unlocked" in repr(roles)
    roles.unlock_conformal("sha256:a")


def test_it_cannot_serve_a_second_model(roles: DataRoles) -> None:
    roles.unlock_conformal("sha256:a")
    with pytest.raises(ConformalRoleLocked, match="already opened for the model sha256:a and cannot serve sha256:b"):
        roles.unlock_conformal("sha256:b")
    assert roles.frozen_digest == "sha256:a"


@pytest.mark.parametrize("digest", ["", None, 3])
def test_unlocking_needs_a_digest(roles: DataRoles, digest: Any) -> None:
    with pytest.raises(UsageError, match="frozen_digest"):
        roles.unlock_conformal(digest)
    with pytest.raises(ConformalRoleLocked):
        _ = roles.conformal


def test_even_unlocked_roles_are_not_pickled(roles: DataRoles) -> None:
    roles.unlock_conformal("sha256:a")
    with pytest.raises(ConformalRoleLocked, match="cannot be pickled"):
        pickle.dumps(roles)


def test_examples_print_only_their_number(roles: DataRoles) -> None:
    assert repr(roles.prune) == "Examples(10 rows)" and len(roles.prune) == 10


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"prune": 0}, "prune_rows"),
        ({"val": 7}, "val_rows.*even"),
        ({"val": 0}, "val_rows"),
        ({"conformal": -1}, "conformal_rows"),
        ({"conformal": 1.5}, "conformal_rows"),
        ({"test": -1}, "test_rows"),
        ({"test": "most"}, "test_rows"),
        ({"prune": True}, "prune_rows"),
    ],
)
def test_sizes_out_of_range(sizes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        RoleSizes(**sizes)


def test_a_manifest_and_its_pool_give_the_same_roles_locked_again(pool: Pool, roles: DataRoles) -> None:
    roles.unlock_conformal("sha256:a")
    again = roles_from_manifest(pool, roles.manifest)
    for role in ("prune", "val_cal", "val_eval", "test"):
        assert getattr(again, role) == getattr(roles, role)
    with pytest.raises(ConformalRoleLocked):
        _ = again.conformal
    again.unlock_conformal("sha256:a")
    assert again.conformal == roles.conformal


def test_another_pool_is_refused_by_row(pool: Pool, roles: DataRoles, make_pool: MakePool) -> None:
    row = roles.manifest.roles["test"].indices[0]
    texts = list(pool.texts)
    texts[row] += "!"
    with pytest.raises(DataError, match=f"Row {row} of split 'train' of toy is not the row .* in role test"):
        roles_from_manifest(make_pool(texts=texts), roles.manifest)
    labels = list(pool.labels)
    labels[row] = (labels[row] + 1) % 3
    with pytest.raises(DataError, match=f"Row {row} of split 'train'"):
        roles_from_manifest(make_pool(texts=pool.texts, labels=labels), roles.manifest)
    with pytest.raises(DataError, match="has only 5 rows"):
        roles_from_manifest(make_pool(5), roles.manifest)
