"""`CPPModelForCausalLM`, `CPPModelForSequenceClassification`: a plain model with its contract."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .contract import Claims, ReliabilityContract, require, verify_folder
from .contract.describe import frozen_digest, score_claim, task_claim, task_of, transform_of
from .errors import ContractViolation, CPPError, DataError, ModelError
from .frozen import FrozenClassifier
from .loading import LoadedModel, load_model, make_scorer, weights_digest
from .results import RunResults
from .scoring import LabelScorer

Self = TypeVar("Self", bound="CPPModel")


class CPPModel:
    """A classifier that returns prediction sets while its contract holds.

    Attributes:
        model: the plain transformers model.
        tokenizer: its tokenizer.
        contract: the reliability contract of the folder.
        frozen: the code path of calibration and prediction.
    """

    kind: str | None = None

    def __init__(self, frozen: FrozenClassifier, contract: ReliabilityContract, directory: Path) -> None:
        self.frozen, self.contract, self.directory = frozen, contract, directory
        self.model, self.tokenizer = frozen.scorer.model, frozen.scorer.tokenizer
        self._trusted = _marks(self.model)
        self._surroundings = _surroundings(self.model, self.tokenizer)

    @classmethod
    def from_pretrained(
        cls: type[Self],
        model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        device_map: Any = None,
        batch_tokens: int | None = None,
        token: str | None = None,
    ) -> Self:
        """Open a folder or Hub repository with a contract, verify it, and load the model.

        Raises:
            ContractViolation: no contract, or something that it froze has moved; the field is named.
            ModelError: the contract is of another kind of model than this class.
        """
        directory = local_folder(model_name_or_path, revision=revision, token=token)
        contract = ReliabilityContract.load(directory)
        claims = contract.claims
        if cls.kind is not None and claims.task.kind != cls.kind:
            raise ModelError(
                f"Expected the contract of {'an' if cls.kind == 'encoder' else 'a'} {cls.kind}, but "
                f"{str(model_name_or_path)!r} has that of a {claims.task.kind}."
            )
        require(verify_folder(directory, claims))
        loaded = load_model(directory, device_map=device_map)
        if str(loaded.model.dtype).removeprefix("torch.") != claims.model.dtype:
            raise _moved("model.dtype")
        try:
            scorer = scorer_of_claims(loaded, claims, batch_tokens)
        except CPPError as error:
            raise ContractViolation(f"The contract describes no classifier that works: {error}") from error
        frozen = FrozenClassifier(
            scorer,
            transform_of(claims.score),
            claims.score.allow_empty,
            frozen_digest(claims.task, claims.score, claims.model),
        )
        if weights_digest(loaded.model) != claims.model.weights_digest:
            raise _moved("model.weights_digest")
        opened = cls(frozen, contract, directory)
        opened._require_unchanged()
        return opened

    @staticmethod
    def around(frozen: FrozenClassifier, contract: ReliabilityContract, directory: Path) -> CPPModel:
        """The class of the contract's kind around a classifier that was just calibrated."""
        kinds = {"decoder": CPPModelForCausalLM, "encoder": CPPModelForSequenceClassification}
        return kinds[contract.claims.task.kind](frozen, contract, directory)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in column order."""
        return self.contract.claims.labels

    def scores(self, texts: str | Sequence[str]) -> npt.NDArray[np.float64]:
        """Nonconformity scores, (N, K) float64, columns in label order.

        Raises:
            ContractViolation: something that the contract froze has moved.
        """
        self._require_unchanged()
        texts = checked_texts(texts)
        return self.frozen.score(texts).nonconformity if texts else np.empty((0, len(self.labels)))

    def predict_set(self, texts: str | Sequence[str], *, progress: bool = False) -> list[dict[str, Any]]:
        """A prediction set for each text, valid at 1 - alpha on exchangeable data.

        Returns:
            For each text `label` (most probable), `set` (most probable first), `probability` (of
            `label`) and `scores` (label -> nonconformity score).

        Raises:
            ContractViolation: something that the contract froze has moved.
        """
        self._require_unchanged()
        texts = checked_texts(texts)
        if not texts:
            return []
        scores = self.frozen.score(texts, "predict" if progress else None)
        sets = self.frozen.sets(scores, self.contract.claims.quantile)
        return [
            _prediction(self.labels, scores.nonconformity[row], scores.probabilities[row], sets[row])
            for row in range(len(texts))
        ]

    def verify(self) -> None:
        """Check the folder, the weights in memory and the way texts are scored against the contract.

        Raises:
            ContractViolation: the field that moved is named.
        """
        require(verify_folder(self.directory, self.contract.claims))
        if weights_digest(self.model) != self.contract.claims.model.weights_digest:
            raise _moved("model.weights_digest")
        self._require_unchanged()

    def _require_unchanged(self) -> None:
        """Cheap enough for every call: the task and score are compared, weights by their change marks."""
        frozen, claims = self.frozen, self.contract.claims
        pairs = {
            "task": (asdict(task_claim(frozen.scorer)), asdict(claims.task)),
            "score": (asdict(score_claim(frozen.transform, frozen.allow_empty)), asdict(claims.score)),
        }
        for group, (found, expected) in pairs.items():
            for name in expected:
                if found[name] != expected[name]:
                    raise _moved(f"{group}.{name}")
        for name, text in _surroundings(self.model, self.tokenizer).items():
            if text != self._surroundings[name]:
                raise _moved(name)
        if self.model.training:
            raise ContractViolation(
                "The reliability contract does not hold: the model is in training mode, where dropout changes its "
                "scores; call model.model.eval()."
            )
        if _marks(self.model) != self._trusted:
            if weights_digest(self.model) != claims.model.weights_digest:
                raise _moved("model.weights_digest")
            self._trusted = _marks(self.model)
        self._surroundings = _surroundings(self.model, self.tokenizer)


class CPPModelForCausalLM(CPPModel):
    """A decoder with label verbalizers and its reliability contract."""

    kind = "decoder"


class CPPModelForSequenceClassification(CPPModel):
    """An encoder with a classification head and its reliability contract."""

    kind = "encoder"


@dataclass(frozen=True)
class CPPResult:
    """What pruning or recalibrating returns.

    Attributes:
        model: the classifier with its contract, ready to `predict_set`.
        contract: its reliability contract.
        results: the numbers of the run, for people and for tables.
        directory: the output folder.
    """

    model: CPPModel
    contract: ReliabilityContract
    results: RunResults
    directory: Path


def scorer_of_claims(loaded: LoadedModel, claims: Claims, batch_tokens: int | None) -> LabelScorer:
    """The scorer that a contract describes, on a loaded model."""
    return make_scorer(
        loaded,
        task_of(claims.task),
        max_text_tokens=claims.task.max_text_tokens,
        length_normalize=claims.task.length_normalize,
        batch_tokens=batch_tokens,
    )


def local_folder(name: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None) -> Path:
    """The folder itself, or a downloaded snapshot of the Hub repository of that name.

    Raises:
        ModelError: neither exists.
    """
    path = Path(name)
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(name), revision=revision, token=token))
    except Exception as error:  # the client raises many kinds: validation, HTTP, offline, not found
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"Expected a folder or a Hub repository named {str(name)!r}, but there is no such folder, and the Hub "
            f"answers: {reason}"
        ) from error


def checked_texts(given: str | Sequence[str]) -> list[str]:
    """One text or several as a list.

    Raises:
        DataError: something that is no string, or a string with half a character.
    """
    texts = [given] if isinstance(given, str) else list(given)
    for row, text in enumerate(texts):
        if not isinstance(text, str) or any("\ud800" <= character <= "\udfff" for character in text):
            raise DataError(f"Expected every text to be a valid string, but text {row} is {text!r:.60}.")
    return texts


def _moved(field: str) -> ContractViolation:
    return ContractViolation(
        f"The reliability contract does not hold: {field} has changed since calibration, which voids the quantile; "
        "restore it, or make a new contract with 'optimum-cli cpp calibrate'."
    )


def _marks(model: Any) -> dict[str, tuple[int, int]]:
    """Address and version counter of every weight: they change when it is replaced or written to.

    Writes through `.data` leave no mark; only `verify`, which hashes the weights, sees those.
    """
    return {name: (value.data_ptr(), value._version) for name, value in model.state_dict(keep_vars=True).items()}


def _surroundings(model: Any, tokenizer: Any) -> dict[str, str]:
    """Tokenizer and model configuration as text, to be compared at every call.

    What stands before the added tokens are padding and truncation, which each call sets for itself.
    """
    tokens = tokenizer.backend_tokenizer.to_str().partition('"added_tokens"')[2]
    return {"tokenizer": tokens, "config": model.config.to_json_string()}


def _prediction(
    labels: tuple[str, ...],
    scores: npt.NDArray[np.float64],
    probabilities: npt.NDArray[np.float64],
    members: npt.NDArray[np.bool_],
) -> dict[str, Any]:
    top = int(probabilities.argmax())
    order = sorted(np.flatnonzero(members).tolist(), key=lambda column: (-probabilities[column], column))
    return {
        "label": labels[top],
        "set": [labels[column] for column in order],
        "probability": float(probabilities[top]),
        "scores": dict(zip(labels, scores.tolist(), strict=True)),
    }
