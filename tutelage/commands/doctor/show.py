"""Output of `tutelage doctor`: checks of a machine, a study or a server, and findings about a run."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.commands.doctor.settings import DoctorSettings
from tutelage.commands.study import study_address

if TYPE_CHECKING:
    from tutelage.commands.doctor.machine import Check
    from tutelage.report.stage_figures import RunFinding


def main(settings: DoctorSettings) -> int:
    """Run the checks, and print their results."""
    checks, findings = _checks(settings), _findings(settings.target)
    if settings.json:
        results = {"findings": findings, "checks": checks or None}
        print(json.dumps({k: list(map(asdict, each)) for k, each in results.items() if each is not None}, indent=2))
    else:
        _print_findings(settings.target, findings)
        _print_checks(checks)
    return int(bool(findings) or any(check.state == "fault" for check in checks))


def _checks(settings: DoctorSettings) -> "list[Check]":
    """Return the checks of the targets in the settings, of the machine if there are none."""
    study = study_address(settings.target)
    checks: list[Check] = []
    if not (settings.target or settings.endpoint):
        from tutelage.commands.doctor.machine import check_machine

        checks += check_machine()
    if study is not None:
        from tutelage.commands.doctor.study_checks import check_study

        checks += check_study(study)
    if settings.endpoint:
        from tutelage.commands.doctor.endpoint import check_endpoint

        checks += check_endpoint(settings.endpoint)
    return checks


def _findings(target: str) -> "tuple[RunFinding, ...] | None":
    """Return the findings of a run; None if the target is not a run, such as a study. Some folders contain both."""
    from tutelage.report.folders import holds_run
    from tutelage.report.stage_figures import findings_in

    folder = Path(target)
    if not target or (study_address(target) is not None and not holds_run(folder)):
        return None
    return findings_in(folder)


def _print_findings(target: str, findings: "Sequence[RunFinding] | None") -> None:
    if findings == ():
        print(f"{target}: No known training problems found. Full report: tutelage report {target}")
    for finding in findings or ():
        print(f"{' '.join(filter(None, (finding.stage, '·', finding.subject)))}: {finding.sentence}")


def _print_checks(checks: "Sequence[Check]") -> None:
    width = max((len(check.subject) for check in checks), default=0)
    for check in checks:
        print(f"{check.state:7s} {check.subject:{width}s}  {check.result}")
        if check.advice:
            print(f"{'':7s} {'':{width}s}  {check.advice}")
