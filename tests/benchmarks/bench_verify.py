"""How fast a large folder is checked, beside `sha256sum` on the same files.

    python tests/benchmarks/bench_verify.py --gib 7

Writes so many GiB of bfloat16 shards with half of their weights zero into a temporary folder (--folder
says where), claims them, and checks them as `optimum-cli cpp verify` does: the files' digests, then the
masks. Both sides read from the page cache where the files fit, so that hashing is compared, not a disk.

Keys: gib, sha256sum_gib_s, files_gib_s, masks_gib_s, files_over_sha256sum, verify_over_sha256sum (files
and masks together), peak_growth_mib (largest resident memory above that before). Nothing here asserts a
time; run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from optimum_cpp.contract.claims import (
    CalibrationClaim,
    Claims,
    FileClaim,
    MatrixClaim,
    ModelClaim,
    ScoreClaim,
    TaskClaim,
)
from optimum_cpp.contract.folder import file_claims, verify_files, verify_weights
from optimum_cpp.contract.masks import mask_claim
from optimum_cpp.stages import StageClock

GIB = 2**30
# A Llama-3-8B feed-forward matrix.
SHAPE = (14336, 4096)


def write_shards(folder: Path, gib: float) -> dict[str, MatrixClaim]:
    """Shards of about a GiB; what a contract says of their matrices."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(SHAPE, generator=generator).to(torch.bfloat16)
    weight[torch.rand(SHAPE, generator=generator) < 0.5] = 0
    claim = mask_claim(weight, None)
    size = weight.numel() * weight.element_size()
    names = [f"layers.{number}.matrix" for number in range(max(1, round(gib * GIB / size)))]
    shard = max(1, GIB // size)
    for start in range(0, len(names), shard):
        # A clone each, since tensors of a shard must not share memory.
        save_file(
            {f"{n}.weight": weight.clone() for n in names[start : start + shard]}, folder / f"{start}.safetensors"
        )
    return dict.fromkeys(names, claim)


def claims_of(files: dict[str, FileClaim], matrices: dict[str, MatrixClaim]) -> Claims:
    """Claims that say nothing but what is checked here."""
    return Claims(
        schema=1,
        task=TaskClaim("encoder", "bench", "{text}", 1, False, ()),
        score=ScoreClaim("nll", "0x1.0000000000000p+0", (), True),
        model=ModelClaim("bfloat16", files, "", matrices),
        pruning=None,
        selection=None,
        calibration=CalibrationClaim("0.1", 0, 1, "inf", (), (), ()),
        manifest_digest="",
        evaluation=(),
        verdicts=None,
        predecessor=None,
    )


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(folder: Path, gib: float) -> dict[str, float]:
    """All figures for shards written into `folder`."""
    matrices = write_shards(folder, gib)
    files = file_claims(folder)
    claims = claims_of(files, matrices)
    paths = [str(folder / name) for name in files]
    size = sum(claim.size for claim in files.values()) / GIB
    sha256sum = seconds(lambda: subprocess.run(["sha256sum", *paths], check=True, capture_output=True))
    clock = StageClock()
    with clock.stage("before"):
        pass
    with clock.stage("verify"):
        of_files = seconds(lambda: _require(verify_files(folder, claims)))
        of_masks = seconds(lambda: _require(verify_weights(folder, claims)))
    before, after = (stage.peak_memory_mib for stage in clock.stages)
    return {
        "gib": size,
        "sha256sum_gib_s": size / sha256sum,
        "files_gib_s": size / of_files,
        "masks_gib_s": size / of_masks,
        "files_over_sha256sum": sha256sum / of_files,
        "verify_over_sha256sum": sha256sum / (of_files + of_masks),
        "peak_growth_mib": after - before,
    }


def _require(findings: Sequence[object]) -> None:
    if not all(getattr(finding, "holds", False) for finding in findings):
        raise SystemExit("Expected everything to hold, but something moved while it was checked.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=7, help="size of the folder (default: 7)")
    parser.add_argument("--folder", type=Path, help="where the temporary folder stands (default: the system's)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    options = parser.parse_args(arguments)
    with TemporaryDirectory(dir=options.folder) as folder:
        figures = measure(Path(folder), options.gib)
    for name, value in figures.items():
        print(f"{name:30} {value:10.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
