"""`optimum-cli cpp predict`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import DataError, UsageError
from .arguments import add_fields, config_from
from .base import CPPSubcommand, add_model_and_output

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
        parser.add_argument(
            "--input", help="jsonl (objects with the text, or strings) or text file; default stdin, one text a line."
        )
        parser.add_argument("-o", "--output", help="jsonl file of prediction sets (default: stdout).")
        add_fields(parser, ("text_column", "device_map", "batch_tokens"))

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Verify the contract, then write one line for each text."""
        config = config_from(args)
        if args.input is not None and not Path(args.input).is_file():
            raise UsageError(f"Expected argument `input` to be a file, but {args.input!r} is not.")
        from ..modeling import CPPModel

        model = CPPModel.from_pretrained(args.model, device_map=config.device_map, batch_tokens=config.batch_tokens)
        with open(args.input, encoding="utf-8") if args.input else _stdin() as source:
            texts = _read_texts(source, args.input or "stdin", config.text_column or "text")
            if args.output is None:
                _write(model, texts, sys.stdout)
                return {}, ""
            return self._to_file(model, texts, Path(args.output))

    def _to_file(self, model: CPPModel, texts: Iterator[str], output: Path) -> tuple[dict[str, Any], str]:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=output.resolve().parent, prefix=f".{output.name}.", delete=False
        ) as target:
            try:
                count = _write(model, texts, target)
                target.flush()
                os.replace(target.name, output)
            except BaseException:
                os.unlink(target.name)
                raise
        return {"texts": count, "output": str(output)}, f"{count} prediction sets written to {output}"


def _stdin() -> IO[str]:
    return open(sys.stdin.fileno(), encoding="utf-8", closefd=False)


def _read_texts(source: IO[str], name: str, column: str) -> Iterator[str]:
    """One text a line; in a jsonl file each line is an object with the text, or a string."""
    for number, line in enumerate(source, start=1):
        line = line.rstrip("\r\n")
        if not line.strip():
            raise DataError(f"Expected every line of {name} to hold a text, but line {number} is empty.")
        yield _text_of(line, f"line {number} of {name}", column) if name.endswith((".jsonl", ".json")) else line


def _text_of(line: str, place: str, column: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        raise DataError(f"Expected {place} to be JSON, but it is {line[:40]!r}.") from None
    text = value.get(column) if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise DataError(f"Expected {place} to hold a text under {column!r}; name its column with --text_column.")
    return text


def _write(model: CPPModel, texts: Iterator[str], target: IO[str]) -> int:
    count = 0
    while chunk := list(islice(texts, CHUNK)):
        for text, prediction in zip(chunk, model.predict_set(chunk, progress=True), strict=True):
            target.write(json.dumps({"text": text, **prediction}, ensure_ascii=False) + "\n")
        count += len(chunk)
    return count
