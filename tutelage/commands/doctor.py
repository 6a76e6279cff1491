"""`tutelage doctor`: what this machine can do, or what is wrong in a run, a study or a server."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tutelage.workflows.settings.study import study_address

if TYPE_CHECKING:
    from tutelage.report import Finding
    from tutelage.workflows.machine import Check


@dataclass(frozen=True)
class Settings:
    """Check this machine: versions, devices, the engine in use and why, memory, disk, ports, extras. With the folder of
    a run or of a round, look for the known ways in which training goes wrong instead; with a study, check its database
    and what keeps it from good votes.

    The exit status is 1 where a check failed or a finding asks for a look."""

    target: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[RUN|STUDY]")] = ""
    """The folder that a verb wrote with --out, or a study: its folder, its database file or a postgresql:// URL.
    Without it, the machine is checked."""
    endpoint: str = ""
    """Address of an OpenAI-compatible server up to /chat/completions, such as http://localhost:8000/v1: ask it for its
    models, a token and log-probabilities. Its key is in TUTELAGE_ENDPOINT_KEY."""
    json: bool = False
    """Print everything as JSON, for other programs."""


def main(settings: Settings) -> int:
    """Check, and print what was found."""
    checks, findings = _checks(settings), _findings(settings.target)
    if settings.json:
        print(json.dumps(_as_json(checks, findings), indent=2))
    else:
        _print_findings(settings.target, findings)
        _print_checks(checks)
    return int(bool(findings) or any(check.state == "fault" for check in checks))


def _checks(settings: Settings) -> "list[Check]":
    """The checks of what the settings name, of the machine where they name nothing."""
    study = study_address(settings.target)
    checks: list[Check] = []
    if not (settings.target or settings.endpoint):
        from tutelage.workflows.machine import check_machine

        checks += check_machine()
    if study is not None:
        from tutelage.workflows.study_checks import check_study

        checks += check_study(study)
    if settings.endpoint:
        from tutelage.workflows.endpoint_checks import check_endpoint

        checks += check_endpoint(settings.endpoint)
    return checks


def _findings(target: str) -> "tuple[Finding, ...] | None":
    """The findings of a run; None where the target is none, such as a study. Some folders hold both."""
    from tutelage.report import findings_in, holds_run

    folder = Path(target)
    if not target or (study_address(target) is not None and not holds_run(folder)):
        return None
    return findings_in(folder)


def _as_json(checks: "Sequence[Check]", findings: "Sequence[Finding] | None") -> dict[str, object]:
    found = {} if findings is None else {"findings": [asdict(finding) for finding in findings]}
    return found | ({"checks": [asdict(check) for check in checks]} if checks else {})


def _print_findings(target: str, findings: "Sequence[Finding] | None") -> None:
    if findings == ():
        print(
            f"{target}: none of the known faults of training was found. Shown in full: tutelage report {target}"
        )
    for finding in findings or ():
        print(f"{' '.join(filter(None, (finding.stage, '·', finding.subject)))}: {finding.sentence}")


def _print_checks(checks: "Sequence[Check]") -> None:
    width = max((len(check.subject) for check in checks), default=0)
    for check in checks:
        print(f"{check.state:7s} {check.subject:{width}s}  {check.found}")
        if check.advice:
            print(f"{'':7s} {'':{width}s}  {check.advice}")
