"""`tutelage push RUN --repo NAME`: the model of a run with its card, on the hub."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from tutelage.base.progress.phases import phase


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Upload the final model of a run to the hub, with its model card written anew. A new repository is private."""

    run: tyro.conf.Positional[Path]
    """The folder that a verb that trains wrote with --out."""
    repo: str
    """The repository on the hub, such as me/my-model. It is made where there is none."""
    public: bool = False
    """Let everybody see a new repository. One that exists stays as it is."""
    list_only: bool = False
    """Write the card and list what would be uploaded. Nothing leaves this machine."""


def main(settings: Settings) -> int:
    """Upload, and print where the model is; or list what would be uploaded."""
    from tutelage.commands.display import display
    from tutelage.workflows.push import push

    with display(), phase("push"):
        pushed = push(settings.run, settings.repo, public=settings.public, list_only=settings.list_only)
    if settings.list_only:
        for file in pushed.files:
            print(f"{file.stat().st_size / 1e6:10,.2f} MB  {file}")
        print(f"Nothing was uploaded. Without --list-only these files go to {settings.repo}.")
    else:
        print(pushed.address)
    return 0
