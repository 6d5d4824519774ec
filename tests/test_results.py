import csv
import io
import json

from sample_results import sample_results

from optimum_cpp.results import row_values


def test_values_are_plain_json_with_rates_beside_counts() -> None:
    values = sample_results().to_dict()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    chosen = values["test"][2]
    assert (chosen["coverage"], chosen["mean_set_size"], chosen["accuracy"]) == (0.91, 1.4, 0.65)
    assert chosen["quantile"] == "inf" and chosen["counts"]["covered"] == 91
    assert [row["in_band"] for row in values["test"]] == [True, True, False]
    assert values["validation"][0]["mean_set_size"] == 1.92
    assert row_values(sample_results().test[0])["quantile"] == "1.25"


def test_the_csv_holds_a_row_for_each_model() -> None:
    rows = list(csv.DictReader(io.StringIO(sample_results().to_csv())))
    assert [(row["model"], row["lambda"]) for row in rows] == [("dense", ""), ("base", "0"), ("chosen", "0.3")]
    assert float(rows[2]["coverage"]) == 0.91 and float(rows[2]["band_high"]) == 0.9
    assert float(rows[1]["mean_set_size"]) == 1.92 and float(rows[0]["ece"]) == 0.125


def test_the_summary_says_what_came_out() -> None:
    text = sample_results().summary()
    lines = text.splitlines()
    chosen = next(line for line in lines if line.startswith("chosen"))
    assert "0.9100" in chosen and "[0.780, 0.900]" in chosen and "1.400" in chosen and "outside its band" in chosen
    assert not any("outside" in line for line in lines if line.startswith(("dense", "base")))
    assert "50.00% of the prunable weights are zero; lambda 0.3 is chosen" in text
    assert "lambda 0: eligible; size 1.92; not chosen" in text and "validity undecided: 91 rows covered" in text
    assert "3 conformal texts were truncated" in text and "test texts" not in text
    assert lines[-1].split() == ["all", "stages", "3.5"]


def test_a_calibration_alone_has_no_lambda_to_show() -> None:
    text = sample_results(lam=None, validation=(), verdicts={}, test=()).summary()
    assert "lambda" not in text and "saliency" in text and "alpha 0.1" in text
