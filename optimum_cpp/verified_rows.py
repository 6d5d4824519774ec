"""The split manifest against the contract, and against the labelled rows that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .contract import Claims, Finding, compare
from .data import (
    ROLES,
    Pool,
    RoleSizes,
    SplitManifest,
    clean_duplicates,
    draw_calibration_roles,
    draw_roles,
    near_duplicates,
    text_digest,
)
from .errors import CPPError

# The splits of roles that were handed over one by one; no seed draws those.
_HANDED_OVER = {"prune", "validation", "conformal"}


def verify_roles(manifest: SplitManifest, claims: Claims) -> Iterator[Finding]:
    """What the manifest says without the data: how many rows, and that no text was used twice."""
    claimed = {"conformal": {claims.calibration.n}, "test": {evaluation.rows for evaluation in claims.evaluation}}
    if claims.selection and claims.predecessor is None:  # otherwise the rows are in the predecessor's manifest
        claimed["val_eval"] = {candidate.rows for candidate in claims.selection.candidates}
    for role, rows in claimed.items():
        if rows:
            yield compare(f"manifest.roles.{role}.rows", rows, {len(manifest.roles[role])})
    shared = list(_shared_texts({role: manifest.roles[role].texts for role in ROLES}))
    yield Finding(
        "manifest.roles.texts",
        not shared or manifest.duplicates.policy == "report",
        "no text in two roles",
        f"{len(shared)} texts, the first in {shared[0]}" if shared else "none",
    )
    touched = manifest.ledger.rows.keys() & {t for role in ("conformal", "test") for t in manifest.roles[role].texts}
    yield Finding(
        "manifest.ledger",
        not touched,
        "no conformal or test text that was used before",
        f"{len(touched)} such texts",
    )


def verify_rows(pool: Pool, manifest: SplitManifest, role_splits: Mapping[str, str] | None) -> Iterator[Finding]:
    """Rows, duplicates, and whether the seed draws these very roles.

    Args:
        pool: the rows, read as they were for the manifest.
        manifest: of the folder.
        role_splits: where the recipe draws roles from splits of their own.
    """
    yield compare("manifest.dataset.digest", manifest.dataset.digest, pool.source.digest)
    complete = True
    for role in ROLES:
        finding = _same_rows(pool, manifest, role)
        complete = complete and finding.holds
        yield finding
    if not complete:
        return
    yield from _duplicates(pool, manifest)
    if not set(manifest.dataset.splits) >= _HANDED_OVER:
        yield from _drawn_again(pool, manifest, role_splits)


def _same_rows(pool: Pool, manifest: SplitManifest, role: str) -> Finding:
    """Whether every position of a role holds the row with its fingerprint and text digest."""
    rows = manifest.roles[role]
    moved = [
        index
        for index, *expected in zip(rows.indices, rows.fingerprints, rows.texts, strict=True)
        if index >= len(pool) or [pool.fingerprint(index), text_digest(pool.texts[index])] != expected
    ]
    found = f"{len(moved)} others, the first at row {moved[0]} of the pool" if moved else f"{len(rows)} rows"
    return Finding(f"manifest.roles.{role}", not moved, f"{len(rows)} rows with their fingerprints", found)


def _duplicates(pool: Pool, manifest: SplitManifest) -> Iterator[Finding]:
    texts = {role: [pool.texts[row] for row in manifest.roles[role].indices] for role in ROLES}
    _, findings = clean_duplicates(pool.texts, pool.labels, "report", describe=pool.place)
    yield compare("manifest.duplicates.found", manifest.duplicates.found, findings.found)
    yield compare("manifest.duplicates.contradictory", manifest.duplicates.contradictory, findings.contradictory)
    yield compare("manifest.duplicates.near", dict(manifest.duplicates.near), near_duplicates(texts))


def _shared_texts(texts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The two roles of every text that is in two."""
    owners: dict[str, str] = {}
    for role in ROLES:
        for text in texts[role]:
            if owners.setdefault(text, role) != role:
                yield f"{owners[text]}/{role}"


def _drawn_again(pool: Pool, manifest: SplitManifest, role_splits: Mapping[str, str] | None) -> Iterator[Finding]:
    sizes = {role: len(manifest.roles[role]) for role in ROLES}
    val, policy = sizes["val_cal"] + sizes["val_eval"], manifest.duplicates.policy
    try:
        if sizes["prune"]:
            wanted = RoleSizes(prune=sizes["prune"], val=val, conformal=sizes["conformal"], test=sizes["test"])
            roles = draw_roles(pool, wanted, seed=manifest.seed, on_duplicates=policy, role_splits=role_splits)
        else:
            roles = draw_calibration_roles(
                pool, sizes["conformal"], sizes["test"], seed=manifest.seed, used=manifest.ledger,
                val_rows=val, on_duplicates=policy,
            )  # fmt: skip
    except CPPError as error:
        yield Finding("manifest.seed", False, f"roles that seed {manifest.seed} draws", str(error))
        return
    for role in ROLES:
        same = roles.manifest.roles[role].indices == manifest.roles[role].indices
        yield Finding(
            f"manifest.roles.{role}.indices",
            same,
            f"the rows that seed {manifest.seed} draws",
            "another choice or order",
        )
