"""What the generated `handler.py` of an output folder serves: prediction sets, on an Inference Endpoint or anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import DataError
from .modeling import CPPModel


class EndpointHandler:
    """The interface that Hugging Face Inference Endpoints call.

    Attributes:
        model: the verified classifier.
    """

    def __init__(self, path: str = "") -> None:
        """Open the folder at `path`, by default the working directory.

        Raises:
            ContractViolation: its contract does not hold, so nothing is served.
        """
        self.model = CPPModel.from_pretrained(path or ".")

    def __call__(self, data: Mapping[str, Any]) -> dict[str, Any] | list[dict[str, Any]]:
        """Prediction sets for `data["inputs"]`, as `CPPModel.predict_set` gives them.

        Args:
            data: `inputs` is one text, answered by one prediction, or a list of texts.

        Raises:
            DataError: no inputs, or inputs that are no texts.
        """
        inputs = data.get("inputs") if isinstance(data, Mapping) else None
        if isinstance(inputs, str):
            return self.model.predict_set(inputs)[0]
        if not isinstance(inputs, list) or not inputs:
            raise DataError(f"Expected `inputs` to be a text or a list of texts, but got {inputs!r:.60}.")
        return self.model.predict_set(inputs)
