from __future__ import annotations

from dataclasses import asdict, dataclass

import pytest

from optimum_cpp.contract.schema import build
from optimum_cpp.errors import ContractViolation


@dataclass(frozen=True)
class Inner:
    count: int


@dataclass(frozen=True)
class Outer:
    name: str
    share: float
    pair: tuple[int, int]
    many: tuple[Inner, ...]
    table: dict[str, Inner]
    maybe: Inner | None


GOOD = {
    "name": "a",
    "share": 0.5,
    "pair": [1, 2],
    "many": [{"count": 1}],
    "table": {"x": {"count": 2}},
    "maybe": None,
}


def test_plain_values_become_the_dataclass() -> None:
    built = build(Outer, GOOD, "claims")
    assert built == Outer("a", 0.5, (1, 2), (Inner(1),), {"x": Inner(2)}, None)
    assert build(Outer, GOOD | {"maybe": {"count": 3}, "share": 1}, "claims").maybe == Inner(3)
    assert asdict(built)["table"] == GOOD["table"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": 1}, r"claims\.name"),
        ({"share": "x"}, r"claims\.share"),
        ({"share": True}, r"claims\.share"),
        ({"pair": [1]}, r"claims\.pair"),
        ({"pair": [1, 2.0]}, r"claims\.pair\[1\]"),
        ({"many": {}}, r"claims\.many"),
        ({"many": [{"count": True}]}, r"claims\.many\[0\]\.count"),
        ({"many": [{}]}, r"claims\.many\[0\]\.count is missing"),
        ({"table": []}, r"claims\.table"),
        ({"table": {"x": 1}}, r"claims\.table\.x"),
        ({"extra": 1}, r"claims\.extra is unknown"),
    ],
)
def test_anything_else_is_refused_by_its_path(change: dict, path: str) -> None:
    with pytest.raises(ContractViolation, match=path):
        build(Outer, GOOD | change, "claims")
    with pytest.raises(ContractViolation, match="claims"):
        build(Outer, [], "claims")
