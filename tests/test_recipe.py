import logging
from pathlib import Path

import pytest

from optimum_cpp.errors import DataError, UsageError
from optimum_cpp.modeling import CPPResult
from optimum_cpp.pruner import get_data_roles
from optimum_cpp.recipe import check_history, decide, open_pool, used_rows
from tiny_models import LABELS
from tiny_runs import labelled_rows, small_config


def test_the_score_depends_on_the_kind_unless_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    roles = get_data_roles(labelled_rows(300, seed=2), config=small_config())
    with caplog.at_level(logging.INFO, logger="optimum_cpp"):
        config, task = decide(small_config(), roles, "decoder")
    assert config.score == "prior_nll" and task.labels == LABELS and task.verbalizers[0] == " film"
    assert "prior_nll" in caplog.text
    config, task = decide(small_config(prompt=None), roles, "encoder")
    assert config.score == "nll" and task.verbalizers == () and task.prompt == "{text}"
    assert decide(small_config(score="label_nll"), roles, "encoder")[0].score == "label_nll"


def test_history_is_read_from_the_models_folder(pruned: CPPResult, dense_folder: Path) -> None:
    assert used_rows(dense_folder) is None
    history = used_rows(pruned.directory)
    assert history is not None and len(history.roles["conformal"]) == 60


def test_rows_of_an_earlier_run_are_not_evaluated_again(pruned: CPPResult, pool_file: Path) -> None:
    history = used_rows(pruned.directory)
    roles = get_data_roles(config=small_config(dataset=str(pool_file), seed=1))
    with pytest.raises(DataError, match="already used"):
        check_history(roles, history, ())
    fresh = get_data_roles(labelled_rows(300, seed=4), config=small_config())
    check_history(fresh, history, ())
    assert set(fresh.manifest.ledger.to_dict()["conformal"]) == set(history.roles["conformal"].texts)


def test_a_recipe_without_data_says_so() -> None:
    with pytest.raises(UsageError, match="dataset"):
        open_pool(None, small_config())
