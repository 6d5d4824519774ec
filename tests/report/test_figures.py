from pathlib import Path

import matplotlib.image
import pytest
from sample_results import sample_results

from optimum_cpp.report.figures import coverage_figure, draw_figures, lambda_grid_figure, set_size_figure


def test_every_figure_is_written_at_twice_a_cards_width(tmp_path: Path) -> None:
    paths = draw_figures(sample_results(), tmp_path)
    assert [path.name for path in paths] == ["set_sizes.png", "lambda_grid.png", "coverage.png"]
    for path in paths:
        picture = matplotlib.image.imread(path)
        assert picture.shape[1] == 1600 and picture[..., :3].std() > 0.01


def test_only_what_the_results_allow_is_drawn(tmp_path: Path) -> None:
    assert [p.name for p in draw_figures(sample_results(test=()), tmp_path)] == ["lambda_grid.png"]
    alone = sample_results(validation=(), dense_validation=None, lam=None)
    assert [p.name for p in draw_figures(alone, tmp_path)] == ["set_sizes.png", "coverage.png"]


def test_bars_are_the_shares_of_test_rows() -> None:
    results = sample_results()
    axes = set_size_figure(results.test).axes[0]
    heights = [[bar.get_height() for bar in container] for container in axes.containers]
    assert heights[0][:3] == pytest.approx([0, 80, 20])
    assert heights[2][:4] == pytest.approx([0, 70, 20, 10])
    assert "labels" in axes.get_xlabel().lower() and "%" in axes.get_ylabel()


def test_the_guardrail_lies_two_points_below_lambda_zero() -> None:
    axes = lambda_grid_figure(sample_results()).axes[0]
    levels = [
        line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1 and len(line.get_ydata()) > 1
    ]
    assert any(level == pytest.approx(58) for level in levels)
    assert "%" in axes.get_ylabel() and "labels" in axes.get_xlabel()


def test_the_target_is_drawn_with_the_bands() -> None:
    axes = coverage_figure(sample_results().test, "0.1").axes[0]
    values = [float(x) for line in axes.lines for x in (*line.get_xdata(), *line.get_ydata())]
    assert any(value == pytest.approx(90) for value in values)
