"""`optimum-cli cpp predict`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import UsageError
from .arguments import add_fields, config_from
from .base import CPPSubcommand, add_model_and_output
from .rows import add_input, check_input, open_input, read_rows

if TYPE_CHECKING:
    from ..modeling import CPPModel

# Texts scored and written together: enough to sort by length, few enough to keep in memory.
CHUNK = 2048


class PredictCommand(CPPSubcommand):
    """Prediction sets for texts, as JSON lines."""

    EXAMPLE = "optimum-cli cpp predict -m out --input texts.jsonl --output sets.jsonl"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Model, input and output."""
        add_model_and_output(parser, output=False)
        add_input(parser)
        parser.add_argument("-o", "--output", help="jsonl file of prediction sets (default: stdout).")
        add_fields(parser, ("text_column", "device_map", "batch_tokens"))

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Verify the contract, then write one line for each text."""
        config = config_from(args)
        check_input(args.input)
        output = _checked_output(args.output, args.model) if args.output is not None else None
        from ..modeling import CPPModel

        model = CPPModel.from_pretrained(args.model, device_map=config.device_map, batch_tokens=config.batch_tokens)
        with open_input(args.input) as source:
            rows = read_rows(source, args.input or "stdin", config.text_column or "text")
            texts = (row.text for row in rows)
            if output is None:
                _write(model, texts, sys.stdout)
                return {}, ""
            count = _write_file(model, texts, output)
        return {"texts": count, "output": str(output)}, f"{count} prediction sets written to {output}"


def _checked_output(name: str, model: str) -> Path:
    output = Path(name)
    if output.is_dir() or not output.resolve().parent.is_dir():
        raise UsageError(f"Expected argument `output` to be a file in a folder that exists, but got {name!r}.")
    if Path(model).is_dir() and output.resolve().is_relative_to(Path(model).resolve()):
        raise UsageError(f"Expected argument `output` to lie outside the model's folder, but got {name!r}.")
    return output


def _write_file(model: CPPModel, texts: Iterator[str], output: Path) -> int:
    """All predictions or none: a temporary file beside the output takes its name at the end."""
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        with open(partial, "x", encoding="utf-8") as target:
            count = _write(model, texts, target)
        os.replace(partial, output)
    except OSError as error:
        raise UsageError(f"Expected to write {str(output)!r}, but: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _write(model: CPPModel, texts: Iterator[str], target: IO[str]) -> int:
    count = 0
    while chunk := list(islice(texts, CHUNK)):
        for text, prediction in zip(chunk, model.predict_set(chunk, progress=True), strict=True):
            target.write(json.dumps({"text": text, **prediction}, ensure_ascii=False) + "\n")
        count += len(chunk)
    return count
