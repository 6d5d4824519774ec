"""Compare saliencies on one model and one data set: same rows, same base pruner, same grid, same rule.

    python examples/compare_saliencies.py -m MODEL --dataset DATASET --base_pruner wanda --sparsity 0.5 \
          --lambda_grid 0 0.1 0.3 0.5 1 --variants true true/root snip threshold/root all/root/rademacher \
          --seeds 0 1 2 -o comparison

Takes every option of `optimum-cli cpp prune`. A variant is a saliency, then its importance scale and
estimator where they are not the defaults. For each seed the roles are drawn anew; every variant then
selects its own lambda on validation, and only when all have selected is the conformal role opened, for
all of them together with the dense model and the base pruner: a coverage guarantee holds for each line
of the table, and nothing was selected from it. `--no-test` stops after validation.

A comparison takes hours, so it can be interrupted: what was measured is kept in the output folder, and
the same command goes on. `comparison.md` holds the tables of what is there so far.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from optimum_cpp import CPPConfig, get_data_roles
from optimum_cpp.algorithm import choose
from optimum_cpp.blocks import find_blocks, matrices_of
from optimum_cpp.candidates import BASE, DENSE, Bench, MeasuredCandidate
from optimum_cpp.commands.arguments import add_fields, config_from
from optimum_cpp.conformal import SetEvaluation
from optimum_cpp.contract.canonical import digest
from optimum_cpp.freezing import scorer_of
from optimum_cpp.frozen import FrozenClassifier
from optimum_cpp.loading import LoadedModel, load_model
from optimum_cpp.measured_saliency import base_gradients, check_saliency, measure_saliency
from optimum_cpp.recipe import decide
from optimum_cpp.saliency import Saliency
from optimum_cpp.scoring import ScoreTransform

logger = logging.getLogger("compare_saliencies")


def zero_of(config: CPPConfig) -> str:
    """The grid's zero as it was written."""
    return next(lam for lam in config.lambda_grid if Fraction(lam) == 0)


def parse_variant(text: str, config: CPPConfig) -> CPPConfig:
    """The recipe of a variant such as `all/root/rademacher`."""
    saliency, *rest = text.split("/")
    names = ("importance_scale", "estimator")
    return config.replace(saliency=saliency, **dict(zip(names, rest, strict=False)))


@dataclasses.dataclass(frozen=True)
class Store:
    """What was measured of one seed, one file each, so that an interrupted comparison goes on.

    Attributes:
        folder: of the seed.
    """

    folder: Path

    def measured(self, key: str, measure: Callable[[], MeasuredCandidate]) -> MeasuredCandidate:
        """A candidate on validation, measured unless its file is there."""
        path = self.folder / f"{key.replace('/', '-')}.json"
        if path.is_file():
            return _candidate_from(json.loads(path.read_text()))
        candidate = measure()
        _write(path, _plain_candidate(candidate))
        return candidate

    def tested(self, key: str, test: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Counts on test, measured unless their file is there."""
        path = self.folder / f"test-{key.replace('/', '-')}.json"
        if not path.is_file():
            _write(path, test())
        return dict(json.loads(path.read_text()))


def compare(
    loaded: LoadedModel, config: CPPConfig, variants: Sequence[str], seed: int, folder: Path, test: bool
) -> None:
    """All variants of one seed; results go to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = config.replace(seed=seed)
    roles = get_data_roles(config=config)
    config, task = decide(config, roles, loaded.kind)
    scorer = scorer_of(loaded, task, config)
    blocks = find_blocks(loaded.model, target_modules=config.target_modules, ignore=config.ignore)
    recipes = {name: parse_variant(name, config) for name in variants}
    for recipe in recipes.values():
        check_saliency(recipe, len(task.labels), len(roles.val_cal), blocks)
    bench = Bench(scorer, blocks, tuple(matrices_of(blocks)), roles, config, folder)
    store = Store(folder)
    bench.keep(DENSE)
    dense = bench.measure(DENSE)  # always: the saliencies need its scores
    store.measured(DENSE, lambda: dense)
    gradients, start = base_gradients(bench), bench.dense_start()

    def pruned(bench: Bench, lam: str, saliency: Saliency | None) -> MeasuredCandidate:
        return bench.measure(lam, bench.prune(lam, start, saliency, gradients))

    base = store.measured(BASE, lambda: pruned(bench, zero_of(config), None))
    chosen: dict[str, tuple[Path, MeasuredCandidate]] = {
        DENSE: (folder / f"{DENSE}.safetensors", dense),
        BASE: (folder / f"{zero_of(config)}.safetensors", base),
    }
    for name, recipe in recipes.items():
        own = dataclasses.replace(bench, config=recipe, work=folder / name.replace("/", "-"))
        chosen[name] = _select(own, store, name, dense, base, pruned)
    if test:
        _test(bench, store, chosen)
    bench.restore(DENSE)


def _select(
    bench: Bench,
    store: Store,
    name: str,
    dense: MeasuredCandidate,
    base: MeasuredCandidate,
    pruned: Callable[[Bench, str, Saliency | None], MeasuredCandidate],
) -> tuple[Path, MeasuredCandidate]:
    """One variant: its saliency, its candidates, its choice; only the chosen weights stay on disk."""
    zero = zero_of(bench.config)
    bench.work.mkdir(exist_ok=True)
    dense_weights = bench.work.parent / f"{DENSE}.safetensors"
    if not (bench.work / dense_weights.name).exists():
        (bench.work / dense_weights.name).hardlink_to(dense_weights)
    made: list[Saliency] = []

    def saliency() -> Saliency:
        if not made:
            bench.restore(DENSE)
            made.append(measure_saliency(bench, dense)[0])
        return made[0]

    candidates = {zero: base}
    for lam in bench.config.lambda_grid:
        if lam != zero:
            candidates[lam] = store.measured(f"{name}@{lam}", lambda lam=lam: pruned(bench, lam, saliency()))
    lam = choose(candidates, bench.config).lam
    for other in set(candidates) - {zero, lam}:
        (bench.work / f"{other}.safetensors").unlink(missing_ok=True)
    _write(store.folder / f"choice-{name.replace('/', '-')}.json", {"variant": name, "lam": lam})
    kept = bench.work if lam != zero else bench.work.parent
    return kept / f"{lam}.safetensors", candidates[lam]


def _test(bench: Bench, store: Store, chosen: dict[str, tuple[Path, MeasuredCandidate]]) -> None:
    """Open the conformal role once for all that was selected, and evaluate on test."""
    bench.roles.unlock_conformal(digest({name: candidate.name for name, (_, candidate) in chosen.items()}))
    firsts: dict[str, str] = {}
    for name, (weights, candidate) in chosen.items():
        # Variants that chose the base pruner alone, or two scales at lambda = 1, have equal weights.
        with weights.open("rb") as file:
            first = firsts.setdefault(hashlib.file_digest(file, "sha256").hexdigest(), name)
        counts = store.tested(first, partial(_evaluate, bench, weights, candidate, name))
        store.tested(name, partial(dict, counts))


def _evaluate(bench: Bench, weights: Path, candidate: MeasuredCandidate, name: str) -> dict[str, Any]:
    dataclasses.replace(bench, work=weights.parent).restore(weights.stem)
    classifier = FrozenClassifier(bench.scorer, candidate.transform, bench.config.allow_empty, digest="")
    quantile = classifier.calibrate(bench.roles.conformal, bench.config.alpha, f"calibrate: {name}").quantile
    return dataclasses.asdict(classifier.evaluate(bench.roles.test, quantile.value, f"test: {name}").counts)


def _plain_candidate(candidate: MeasuredCandidate) -> dict[str, Any]:
    """What a later run needs of a candidate; its weights lie beside."""
    return {
        "name": candidate.name,
        "transform": dataclasses.asdict(candidate.transform),
        "quantile": candidate.quantile,
        "counts": dataclasses.asdict(candidate.counts),
    }


def _candidate_from(plain: dict[str, Any]) -> MeasuredCandidate:
    transform, prior = plain["transform"], plain["transform"]["prior"]
    return MeasuredCandidate(
        plain["name"],
        ScoreTransform(transform["score"], transform["temperature"], None if prior is None else tuple(prior)),
        plain["quantile"],
        _counts_from(plain["counts"]),
        np.empty((0, 0)),
    )


def _counts_from(plain: dict[str, Any]) -> SetEvaluation:
    return SetEvaluation(**(plain | {"size_histogram": tuple(plain["size_histogram"])}))


def _write(path: Path, value: Any) -> None:
    """All of the file or nothing."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.replace(path)


# Tables.


def tables(output: Path, variants: Sequence[str], seeds: Sequence[int]) -> str:
    """Mean set size / accuracy of every candidate on validation, and of what was chosen on test, by seed."""
    lines = [
        "| seed | variant | lambda: set size / accuracy on val_eval | chosen | coverage, set size / accuracy on test |"
    ]
    lines.append("|---|---|---|---|---|")
    for seed in seeds:
        folder = output / f"seed-{seed}"
        for name in (DENSE, BASE, *variants):
            key = name.replace("/", "-")
            found = sorted(folder.glob(f"{key}@*.json")) or sorted(folder.glob(f"{key}.json"))
            cells = [_validation_cell(json.loads(path.read_text())) for path in found]
            choice, test = folder / f"choice-{key}.json", folder / f"test-{key}.json"
            lam = json.loads(choice.read_text())["lam"] if choice.is_file() else ""
            lines.append(f"| {seed} | {name} | {', '.join(cells)} | {lam} | {_test_cell(test)} |")
    return "\n".join(lines) + "\n"


def _validation_cell(plain: dict[str, Any]) -> str:
    counts = _counts_from(plain["counts"])
    lam = "" if plain["name"] == DENSE else f"{plain['name']}: "
    return f"{lam}{counts.mean_set_size:.2f} / {counts.accuracy:.3f}"


def _test_cell(path: Path) -> str:
    if not path.is_file():
        return ""
    counts = _counts_from(json.loads(path.read_text()))
    return f"{counts.coverage:.3f}, {counts.mean_set_size:.2f} / {counts.accuracy:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-o", "--output", required=True, type=Path)
    parser.add_argument("--variants", nargs="+", required=True, metavar="SALIENCY[/SCALE[/ESTIMATOR]]")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--test", action=argparse.BooleanOptionalAction, default=True)
    add_fields(parser, tuple(item.name for item in dataclasses.fields(CPPConfig) if item.name != "seed"))
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = config_from(options)
    loaded = load_model(options.model, revision=config.model_revision, gguf_file=config.gguf_file, dtype=config.dtype)
    for seed in options.seeds:
        folder = options.output / f"seed-{seed}"
        compare(loaded, config, options.variants, seed=seed, folder=folder, test=options.test)
        shown = tables(options.output, options.variants, options.seeds)
        (options.output / "comparison.md").write_text(shown)
    print(shown)


if __name__ == "__main__":
    main()
