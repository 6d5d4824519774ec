"""How long near duplicates across roles take to find, how much memory, and how many of them are found.

    python tests/benchmarks/bench_duplicates.py --rows 100000

Half of the rows are in one role, half in another: texts of 20 to 60 words whose frequencies follow Zipf's
law. One in a hundred rows of the second role is a row of the first with its last word changed.

Keys: rows, seconds, peak_growth_mib, recall (pairs found / planted pairs whose index is at least 0.8).
Nothing here asserts a time; run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from optimum_cpp.data.duplicates import near_duplicates, word_grams
from optimum_cpp.stages import StageClock

VOCABULARY = 30000


def make_texts(rows: int, seed: int = 0) -> tuple[list[str], int]:
    """Texts of both roles, one behind the other, and the number of planted pairs."""
    generator = np.random.default_rng(seed)
    frequencies = 1 / np.arange(1, VOCABULARY + 1)
    lengths = generator.integers(20, 61, rows)
    drawn = generator.choice(VOCABULARY, size=int(lengths.sum()), p=frequencies / frequencies.sum())
    texts = [[f"w{word}" for word in part] for part in np.split(drawn, lengths.cumsum()[:-1])]
    near = 0
    for row in range(rows // 200):
        texts[rows // 2 + row] = [*texts[row][:-1], "other"]
        one, two = (word_grams(" ".join(texts[place])) for place in (row, rows // 2 + row))
        near += 5 * len(one & two) >= 4 * len(one | two)
    return [" ".join(words) for words in texts], near


def measure(rows: int) -> dict[str, float]:
    """All figures."""
    texts, planted = make_texts(rows)
    clock = StageClock()
    with clock.stage("before"):
        pass
    with clock.stage("search"):
        found = near_duplicates({"prune": texts[: rows // 2], "test": texts[rows // 2 :]})
    before, search = clock.stages
    return {
        "rows": float(rows),
        "seconds": search.seconds,
        "peak_growth_mib": search.peak_memory_mib - before.peak_memory_mib,
        "recall": found.get("prune/test", 0) / planted,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of both roles together (default: 100000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    figures = measure(options.rows)
    for name, value in figures.items():
        print(f"{name:30} {value:10.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
