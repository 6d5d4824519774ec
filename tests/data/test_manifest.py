"""The manifest: round trip, whole writes, and a strict reader."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optimum_cpp.data import (
    DatasetSource,
    DuplicateFindings,
    Ledger,
    Pool,
    RoleRows,
    RoleSizes,
    SplitManifest,
)
from optimum_cpp.data import draw_roles as draw
from optimum_cpp.errors import DataError

Values = dict[str, Any]
INDICES = {"prune": (8, 1), "val_cal": (3,), "val_eval": (2,), "conformal": (7, 0), "test": (5, 4, 6)}


def digits(row: int) -> str:
    return f"{row:064x}"


def rows(*indices: int) -> RoleRows:
    return RoleRows(indices, tuple(digits(index + 1000) for index in indices), tuple(map(digits, indices)))


@pytest.fixture
def manifest() -> SplitManifest:
    return SplitManifest(
        dataset=DatasetSource("me/täxt", "0" * 40, ("train", "test"), "text", "label", "sha256:" + "1" * 64),
        seed=3,
        exceptions=("Split train has 9 usable rows.",),
        duplicates=DuplicateFindings("drop", 4, 4, 1, {"conformal/test": 2}),
        roles={role: rows(*indices) for role, indices in INDICES.items()},
        ledger=Ledger().adding("train", [digits(99)]),
    )


def test_round_trip_through_a_file(manifest: SplitManifest, tmp_path: Path) -> None:
    path = tmp_path / "split_manifest.json"
    manifest.save(path)
    assert SplitManifest.load(path) == manifest
    assert json.loads(path.read_text(encoding="utf-8")) == manifest.to_dict()
    assert os.listdir(tmp_path) == ["split_manifest.json"]


def test_to_dict_has_the_documented_shape(manifest: SplitManifest) -> None:
    assert manifest.to_dict() == {
        "schema": 1,
        "dataset": {
            "id": "me/täxt",
            "revision": "0" * 40,
            "splits": ["train", "test"],
            "text_column": "text",
            "label_column": "label",
            "digest": "sha256:" + "1" * 64,
        },
        "seed": 3,
        "exceptions": ["Split train has 9 usable rows."],
        "duplicates": {
            "policy": "drop",
            "found": 4,
            "dropped": 4,
            "contradictory": 1,
            "near": {"conformal/test": 2},
        },
        "roles": {
            role: {
                "indices": list(indices),
                "fingerprints": [digits(index + 1000) for index in indices],
                "texts": [digits(index) for index in indices],
            }
            for role, indices in INDICES.items()
        },
        "ledger": {"train": [digits(99)]},
    }


def test_a_drawn_manifest_survives_the_round_trip(make_pool: Callable[..., Pool], tmp_path: Path) -> None:
    drawn = draw(make_pool(60), RoleSizes(10, 10, 10, 20), seed=0).manifest
    drawn.save(tmp_path / "m.json")
    assert SplitManifest.load(tmp_path / "m.json") == drawn
    assert SplitManifest.from_dict(json.loads(json.dumps(drawn.to_dict()))).to_dict() == drawn.to_dict()


def test_a_manifest_holds_no_text(make_pool: Callable[..., Pool]) -> None:
    drawn = draw(make_pool(60), RoleSizes(10, 10, 10, 20), seed=0).manifest
    assert "text number" not in json.dumps(drawn.to_dict())


def test_a_failed_write_leaves_the_old_file(
    manifest: SplitManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.json"
    path.write_text("old", encoding="utf-8")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        manifest.save(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["m.json"]


def test_a_reader_of_the_old_file_is_not_disturbed(manifest: SplitManifest, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text("old", encoding="utf-8")
    with path.open(encoding="utf-8") as reader:
        manifest.save(path)
        assert reader.read() == "old"
    assert SplitManifest.load(path) == manifest


def test_used_rows_are_those_of_roles_and_ledger(manifest: SplitManifest) -> None:
    used = manifest.used()
    assert len(used) == 10
    assert used.rows[digits(7)] == {"conformal"} and used.rows[digits(99)] == {"train"}


def test_training_rows_enter_the_ledger(manifest: SplitManifest) -> None:
    trained = manifest.with_training_texts([digits(8), digits(50)])
    assert trained.used().rows[digits(8)] == {"train", "prune"}
    assert trained.ledger.to_dict() == {"train": [digits(8), digits(50), digits(99)]}
    assert manifest.ledger.to_dict() == {"train": [digits(99)]}


@pytest.mark.parametrize(("row", "role"), [(7, "conformal"), (5, "test")])
def test_training_rows_must_not_be_conformal_or_test(manifest: SplitManifest, row: int, role: str) -> None:
    with pytest.raises(DataError, match=f"1 of the 2 training rows belong to role {role}"):
        manifest.with_training_texts([digits(row), digits(50)])


def put(*path: str, value: Any) -> Callable[[Values], None]:
    def change(values: Values) -> None:
        for name in path[:-1]:
            values = values[name]
        values[path[-1]] = value

    return change


def drop(*path: str) -> Callable[[Values], None]:
    def change(values: Values) -> None:
        for name in path[:-1]:
            values = values[name]
        del values[path[-1]]

    return change


FAULTS: list[tuple[Callable[[Values], None], str]] = [
    (put("schema", value=2), "schema 2, but this version .* reads up to 1; update"),
    (put("schema", value=0), "`schema` .* to be 1, but got 0"),
    (put("schema", value=True), "`schema`"),
    (put("schema", value="1"), "`schema`"),
    (drop("seed"), "hold `seed`, but it is missing"),
    (put("note", value=""), "also has `note`"),
    (put("seed", value=1.0), r"`seed` .* int, but got 1\.0"),
    (put("exceptions", value=[1]), "`exceptions` .* strings"),
    (put("dataset", value=[]), "`dataset` .* dict"),
    (put("dataset", "revision", value=1), "`revision` .* str or NoneType"),
    (put("dataset", "splits", value=["a", None]), r"`dataset\.splits`"),
    (drop("dataset", "digest"), "dataset to hold `digest`"),
    (put("duplicates", "policy", value="ignore"), r"`duplicates\.policy`.*'ignore'"),
    (put("duplicates", "found", value=-1), r"`duplicates\.found`"),
    (put("duplicates", "near", value={"a/b": "2"}), r"`duplicates\.near\.a/b`"),
    (drop("roles", "test"), "roles to hold `test`"),
    (put("roles", "train", value={}), "roles to hold only .* `train`"),
    (put("roles", "prune", "indices", value=[8]), "prune .* 1 rows, 2 fingerprints and 2 text"),
    (put("roles", "test", "texts", value=[]), "test .* 3 rows, 3 fingerprints and 0 text"),
    (drop("roles", "test", "texts"), r"roles\.test to hold `texts`"),
    (put("roles", "prune", "indices", value=[8, 8]), "row 8 is in prune and in prune"),
    (put("roles", "prune", "indices", value=[8, 7]), "row 7 is in prune and in conformal"),
    (put("roles", "prune", "indices", value=[8, -1]), r"`roles\.prune\.indices`.*-1"),
    (put("roles", "prune", "indices", value=[8, True]), r"`roles\.prune\.indices`.*True"),
    (put("roles", "prune", "indices", value=[8, 1.0]), r"`roles\.prune\.indices`"),
    (put("roles", "prune", "fingerprints", value=["0" * 63, "0" * 64]), r"`roles\.prune\.fingerprints`"),
    (put("roles", "prune", "fingerprints", value=["A" * 64, "0" * 64]), r"`roles\.prune\.fingerprints`"),
    (put("ledger", "train", value="all"), r"`ledger\.train`"),
    (put("ledger", "seen", value=[]), "ledger to name only .* 'seen'"),
]


@pytest.mark.parametrize(("change", "expected"), FAULTS, ids=[expected for _, expected in FAULTS])
def test_each_fault_is_named(manifest: SplitManifest, change: Callable[[Values], None], expected: str) -> None:
    values = copy.deepcopy(manifest.to_dict())
    change(values)
    with pytest.raises(DataError, match=expected):
        SplitManifest.from_dict(values)


@pytest.mark.parametrize("values", [None, [], "x", 1])
def test_something_else_than_an_object(values: Any) -> None:
    with pytest.raises(DataError, match="to be a JSON object"):
        SplitManifest.from_dict(values)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"schema": 1, "schema": 1}', "'schema' is repeated"),
        ('{"roles": {"test": 1, "test": 2}}', "'test' is repeated"),
        ('{"seed": NaN}', "strict JSON: Expected JSON without NaN"),
        ('{"seed": -Infinity}', "strict JSON: Expected JSON without -Infinity"),
        ("{", r"m\.json is not strict JSON"),
        ("", r"m\.json is not strict JSON"),
        ("[" * 100_000, r"m\.json is not strict JSON"),
        (b"\xff\xfe", r"m\.json is not strict JSON"),
    ],
)
def test_files_that_are_not_strict_json(tmp_path: Path, content: str | bytes, expected: str) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=expected):
        SplitManifest.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.json cannot be read \(No such file"):
        SplitManifest.load(tmp_path / "absent.json")


def test_roles_that_are_not_the_five(manifest: SplitManifest) -> None:
    with pytest.raises(DataError, match="roles to be prune, val_cal, val_eval, conformal, test, but got test"):
        SplitManifest(manifest.dataset, 0, (), manifest.duplicates, {"test": rows(1)})
