"""Settings of `tutelage doctor`."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class DoctorSettings:
    """Check this machine: versions, devices, the engine in use and why, memory, disk, ports, extras. With the folder of
    a run or of a round, look for the known ways in which training goes wrong instead; with a study, check its database
    and what keeps it from good votes.

    The exit status is 1 where a check failed or there is a finding."""

    target: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[RUN|STUDY]")] = ""
    """The folder that a command wrote with --out, or a study: its folder, its database file or a postgresql:// URL.
    Without it, the machine is checked."""
    endpoint: str = ""
    """Address of an OpenAI-compatible server up to /chat/completions, such as http://localhost:8000/v1: ask it for its
    models, a token and log-probabilities. Its key is in TUTELAGE_ENDPOINT_KEY."""
    json: bool = False
    """Print everything as JSON, for other programs."""
