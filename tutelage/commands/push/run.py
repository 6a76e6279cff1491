"""Publishing: the final model of a run with its card, as a repository of the hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.commands.results import MODEL
from tutelage.report.model_card import write_model_card


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

    model = run / MODEL
    if not (run / "summary.json").is_file() or not model.is_dir():
        raise TutelageError(
            f"{run} is not the folder of a finished run: it has no summary.json or no {MODEL}/. Give the folder that a "
            "verb that trains wrote with --out."
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
