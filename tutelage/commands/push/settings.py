"""Settings of `tutelage push`."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """Upload the final model of a run to the hub, with its model card written anew. A new repository is private."""

    run: tyro.conf.Positional[Path]
    """The folder that a verb that trains wrote with --out."""
    repo: str
    """The repository on the hub, such as me/my-model. It is made where there is none."""
    public: bool = False
    """Let everybody see a new repository. One that exists stays as it is."""
    list_only: bool = False
    """Write the card and list what would be uploaded. Nothing leaves this machine."""
