"""Claims that no run can have made, whatever their digests say."""

from __future__ import annotations

import math
import re

from ..conformal.quantile import parse_alpha
from ..errors import ContractViolation, DataError, UsageError
from ..registry import SCORES
from .canonical import from_hex
from .claims import Claims

# A file name without a folder: no separator, and not the folder itself or its parent.
_FILE_NAME = re.compile(r"(?!\.{1,2}$)[^/\\\x00]{1,255}")


def check_meaning(claims: Claims) -> None:
    """Refuse claims before anything is built from them.

    Raises:
        ContractViolation: a value that no calibration writes; the field is named.
    """
    labels, prior, score = claims.labels, claims.score.prior, claims.score
    try:
        parse_alpha(claims.calibration.alpha)
        temperature = from_hex(score.temperature)
        _ = claims.quantile, [from_hex(value) for value in (*prior, *claims.calibration.scores)]
        probabilities = [from_hex(value) for value in claims.calibration.top_probabilities]
    except (DataError, UsageError) as error:
        raise ContractViolation(f"The contract holds a number that no calibration writes: {error}") from error
    calibration = claims.calibration
    failed = {
        "task.kind": claims.task.kind not in ("decoder", "encoder"),
        "task.labels": len(labels) < 2 or len(set(labels)) < len(labels),
        "task.prompt": claims.task.prompt.count("{text}") != 1,
        "task.max_text_tokens": claims.task.max_text_tokens < 1,
        "score.name": score.name not in SCORES,
        "score.temperature": not 0 < temperature < math.inf,
        "model.files": not all(_FILE_NAME.fullmatch(name) for name in claims.model.files),
        "calibration.scores": len(calibration.scores) != calibration.n,
        "calibration.top_probabilities": len(probabilities) != calibration.n
        or not all(0 <= value <= 1 for value in probabilities),
        "calibration.set_sizes": len(calibration.set_sizes) != calibration.n
        or not all(0 <= size <= len(labels) for size in calibration.set_sizes),
    }
    if not failed["score.name"]:
        failed["score.prior"] = len(prior) != (len(labels) if SCORES[score.name].uses_prior else 0)
    for name, wrong in failed.items():
        if wrong:
            raise ContractViolation(f"The contract's field {name} has a value that no calibration writes.")
