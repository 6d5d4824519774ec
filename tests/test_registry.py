from __future__ import annotations

import sys

import pytest
import torch

from optimum_cpp.errors import UsageError
from optimum_cpp.pruning import BasePruner, PruneRequest
from optimum_cpp.pruning.base import prune_output_rows
from optimum_cpp.registry import BASE_PRUNERS, SCORES, Registry
from optimum_cpp.scoring import Score


def test_names_of_the_package_itself() -> None:
    assert list(BASE_PRUNERS) == ["magnitude", "wanda", "sparsegpt", "random", "gradient", "snip", "wanda++"]
    assert list(SCORES) == ["nll", "label_nll", "prior_nll"]
    assert all(isinstance(BASE_PRUNERS[name], BasePruner) for name in BASE_PRUNERS)
    assert all(isinstance(SCORES[name], Score) for name in SCORES)


def test_built_in_modules_are_imported_on_first_use() -> None:
    registry = Registry("thing", {"missing": ".pruning.no_such_module"})
    assert "missing" in registry and list(registry) == ["missing"]
    with pytest.raises(ModuleNotFoundError, match=r"optimum_cpp\.pruning\.no_such_module"):
        registry["missing"]


def test_a_function_registered_by_decorator() -> None:
    registry = Registry("thing", {})

    @registry.register("double")
    def double(value: int) -> int:
        return 2 * value

    assert registry["double"] is double and double(2) == 4
    assert "double" in registry and "triple" not in registry and list(registry) == ["double"]


def test_an_unknown_name_lists_those_there_are() -> None:
    registry = Registry("thing", {})
    registry.register("one")(1)
    registry.register("two")(2)
    with pytest.raises(UsageError, match="Expected a thing among one, two, but got 'three'"):
        registry["three"]


def test_a_name_is_taken_once() -> None:
    registry = Registry("thing", {})
    registry.register("one")(1)
    with pytest.raises(UsageError, match="new name for a thing, but 'one' is taken"):
        registry.register("one")(2)
    assert registry["one"] == 1


def test_a_name_of_the_package_is_taken_before_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    BASE_PRUNERS["wanda"]
    monkeypatch.delitem(sys.modules, "optimum_cpp.pruning.wanda")
    monkeypatch.setattr(BASE_PRUNERS, "_entries", {})
    with pytest.raises(UsageError, match="new name for a base pruner, but 'wanda' is taken"):
        BASE_PRUNERS.register("wanda")(1)
    assert BASE_PRUNERS["wanda"].needs == "norms"


def test_a_base_pruner_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BASE_PRUNERS, "_entries", dict(BASE_PRUNERS._entries))

    def smallest_square(request: PruneRequest):  # type: ignore[no-untyped-def]
        return prune_output_rows(request.weight.square(), request)

    BASE_PRUNERS.register("square")(BasePruner(needs="nothing", prune=smallest_square))
    assert list(BASE_PRUNERS)[-1] == "square"
    weight = torch.tensor([[3.0, -1.0]])
    request = PruneRequest("m", weight, None, None, "square", None, "0", "0.5", torch.Generator())
    assert BASE_PRUNERS["square"].prune(request).pruned.tolist() == [[False, True]]
