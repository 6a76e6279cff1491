"""Settings of `tutelage doctor`."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class DoctorSettings:
    """Check this machine: versions, devices, the engine in use, memory, disk, ports, extras. With the folder of a run
    or a round, check it for known training problems instead; with a study, check its database and what lowers the
    quality of its votes.

    The exit status is 1 if a check failed or a problem was found.
    """

    target: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[RUN|STUDY]")] = ""
    """Folder that a command wrote with --out, or a study: its folder, its database file or a postgresql:// URL. By
    default, the machine is checked."""
    endpoint: str = ""
    """Address of an OpenAI-compatible server up to /chat/completions, such as http://localhost:8000/v1: check its
    models, a completion of one token and log-probabilities. Its key is read from TUTELAGE_ENDPOINT_KEY."""
    json: bool = False
    """Print the results as JSON, for other programs."""
