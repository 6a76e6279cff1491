"""`tutelage push RUN --repo NAME`: upload the final model of a run with its card to a hub repository."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.commands.results import model_of


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """Upload the final model of a run to the hub, with an updated model card. A new repository is private."""

    run: tyro.conf.Positional[Path]
    """Folder that a training command wrote with --out."""
    repo: str
    """Repository on the hub, such as me/my-model; created if absent."""
    public: bool = False
    """Make a new repository public. The visibility of an existing one does not change."""
    list_only: bool = False
    """Write the card and list the files to upload, without uploading."""


def main(settings: PushSettings) -> int:
    """Upload, and print the address of the model; or list the files to upload."""
    from tutelage.commands.display import display

    with display(), phase("push"):
        pushed = push(settings.run, settings.repo, public=settings.public, list_only=settings.list_only)
    if settings.list_only:
        for file in pushed.files:
            print(f"{file.stat().st_size / 1e6:10,.2f} MB  {file}")
        print(f"Nothing was uploaded. Without --list-only these files go to {settings.repo}.")
    else:
        print(pushed.address)
    return 0


@dataclass(frozen=True)
class Pushed:
    """Uploaded files, or files to upload."""

    files: tuple[Path, ...]
    """Files of the model, including the card."""
    address: str
    """Page of the repository; "" if nothing was uploaded."""


def push(run: Path, repo: str, *, public: bool = False, list_only: bool = False, api: Any = None) -> Pushed:
    """Upload `model/` of a finished run, with an updated card that includes later evaluations.

    A missing repository is created, private unless `public`; an existing one keeps its visibility. With `list_only` the
    card is written but nothing is uploaded. `api` is an `HfApi`, by default with the token of `hf auth login` or
    HF_TOKEN.

    Raises TutelageError for an unfinished run, for an invalid repository name, and if the hub refuses or cannot be
    reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    from tutelage.report.model_card import write_model_card

    model = model_of(run)
    try:
        validate_repo_id(repo)
    except ValueError as error:
        raise TutelageError(f"--repo {repo} is not a valid repository name, such as me/my-model: {error}") from error
    write_model_card(run)
    files = tuple(sorted(path for path in model.rglob("*") if path.is_file()))
    if list_only:
        return Pushed(files, "")
    hub = api or HfApi()
    try:
        created = hub.create_repo(repo, private=not public, exist_ok=True)
        hub.upload_folder(repo_id=created.repo_id, folder_path=model, commit_message=f"Upload {run.resolve().name}")
    except (OSError, ValueError) as error:  # errors of huggingface_hub, the network or a missing token
        raise TutelageError(
            f"The hub refused {repo}: {error}. The model is unchanged in {model}; log in with `hf auth login`, or set "
            "HF_TOKEN to a token with write access."
        ) from error
    return Pushed(files, str(created))
