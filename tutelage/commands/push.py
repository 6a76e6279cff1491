"""`tutelage push RUN --repo NAME`: the final model of a run with its card, as a repository of the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.commands.results import MODEL


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """Upload the final model of a run to the hub, with its model card written anew. A new repository is private."""

    run: tyro.conf.Positional[Path]
    """The folder that a command that trains wrote with --out."""
    repo: str
    """The repository on the hub, such as me/my-model. It is made where there is none."""
    public: bool = False
    """Let everybody see a new repository. One that exists stays as it is."""
    list_only: bool = False
    """Write the card and list what would be uploaded. Nothing leaves this machine."""


def main(settings: PushSettings) -> int:
    """Upload, and print where the model is; or list what would be uploaded."""
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
    """What was uploaded, or what would be."""

    files: tuple[Path, ...]
    """The files of the model, the card among them."""
    address: str
    """The page of the repository; "" where nothing was uploaded."""


def push(run: Path, repo: str, *, public: bool = False, list_only: bool = False, api: Any = None) -> Pushed:
    """Upload `model/` of a finished run, with its card written anew, so that evaluations since its end are on it.

    A repository that does not exist is made, private unless `public`; one that exists stays as visible as it is. With
    `list_only` the card is written and nothing leaves the machine. `api` is an `HfApi`, by default that of the token
    that `hf auth login` or HF_TOKEN left.

    Raises TutelageError for a run that is not finished, for a name that the hub cannot have, and where the hub refuses
    or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    from tutelage.report.model_card import write_model_card

    model = run / MODEL
    if not (run / "summary.json").is_file() or not model.is_dir():
        raise TutelageError(
            f"{run} is not the folder of a finished run: it has no summary.json or no {MODEL}/. Give the folder that a "
            "command that trains wrote with --out."
        )
    try:
        validate_repo_id(repo)
    except ValueError as error:
        raise TutelageError(
            f"--repo {repo} is no name of a repository, such as me/my-model: {error}"
        ) from error
    write_model_card(run)
    files = tuple(sorted(path for path in model.rglob("*") if path.is_file()))
    if list_only:
        return Pushed(files, "")
    hub = api or HfApi()
    try:
        made = hub.create_repo(repo, private=not public, exist_ok=True)
        hub.upload_folder(
            repo_id=made.repo_id, folder_path=model, commit_message=f"Upload {run.resolve().name}"
        )
    except (OSError, ValueError) as error:  # those of huggingface_hub, of the network and of a missing token
        raise TutelageError(
            f"The hub did not take {repo}: {error}. The model is unchanged in {model}; log in with `hf auth login`, or "
            "set HF_TOKEN, to a token that may write there."
        ) from error
    return Pushed(files, str(made))
