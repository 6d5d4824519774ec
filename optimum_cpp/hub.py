"""An output folder to the Hugging Face Hub, in one commit."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from .contract import ReliabilityContract, require
from .errors import HubError, UsageError
from .filenames import CARD_NAME
from .model_card import address_card

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def push_to_hub(
    directory: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    gated: Literal["auto", "manual"] | None = None,
    create_pr: bool = False,
    revision: str | None = None,
    token: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Upload a folder whose contract holds; the repository then holds these files and no others.

    The folder itself is left as it is; the uploaded card names the repository in its place.

    Args:
        directory: an output folder.
        repo_id: `name` or `user/name`; created where it does not exist.
        private: visibility of a new repository (default: the account's).
        gated: ask for approval before others may download.
        create_pr: open a pull request in place of a commit to `revision`.
        revision: branch (default: main).
        token: access token; by default the one that you are logged in with.
        commit_message: default says which contract is uploaded.

    Returns:
        Address of the commit, or of the pull request.

    Raises:
        ContractViolation: no contract, or one that does not hold: nothing is uploaded.
        UsageError: a repo id of the wrong form, or no token.
        HubError: the Hub refuses or cannot be reached.
    """
    folder = Path(directory)
    _check_repo_id(repo_id)
    contract = ReliabilityContract.load(folder)
    require(contract.verify(folder))
    api = _api(token)
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        if gated is not None:
            api.update_repo_settings(repo_id, gated=gated)
        with TemporaryDirectory() as upload:
            _link(folder, Path(upload), repo_id)
            done = api.upload_folder(
                folder_path=upload,
                repo_id=repo_id,
                revision=revision,
                create_pr=create_pr,
                commit_message=commit_message or f"Upload the model with contract {contract.digest}",
                # A shard that an earlier model left would be a file that the contract does not know.
                delete_patterns="*",
            )
    except Exception as error:  # the client raises many kinds: HTTP answers, connections, local files
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise HubError(f"Expected the Hub to take {repo_id!r}, but it answers: {reason}") from error
    return str(done.pr_url or done.commit_url)


def _check_repo_id(repo_id: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"Expected argument `repo_id` to be name or user/name, but got {repo_id!r}: {reason}"
        ) from error


def _api(token: str | None) -> HfApi:
    from huggingface_hub import HfApi, get_token

    if not token and not get_token():
        raise UsageError(
            "Expected a token of the Hub, but there is none; run 'hf auth login', set HF_TOKEN, or pass `token`."
        )
    return HfApi(token=token or None)


def _link(folder: Path, upload: Path, repo_id: str) -> None:
    """Every file that is not hidden, by a link, except the card, which is written anew."""
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_dir() or any(part.startswith(".") for part in place.parts):
            continue
        (upload / place).parent.mkdir(parents=True, exist_ok=True)
        if place == Path(CARD_NAME):
            card = path.read_text(encoding="utf-8")
            (upload / place).write_text(address_card(card, folder.resolve().name, repo_id), encoding="utf-8")
        else:
            (upload / place).symlink_to(path.resolve())
