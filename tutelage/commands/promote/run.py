"""Promotion of a model on the evidence of a split test."""

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.commands.calls import workflow
from tutelage.commands.promote.settings import PromoteSettings
from tutelage.commands.results import MODEL, model_of
from tutelage.commands.split_evidence import evidence_of
from tutelage.data.record_files import fingerprint
from tutelage.report.model_card import write_model_card
from tutelage.report.provenance import PROMOTIONS
from tutelage.stats.split_test import SplitTest


@dataclass(frozen=True)
class Promotion:
    """Outcome of `promote`: whether the model is promoted now, and the split test (None for a withdrawal)."""

    promoted: bool
    test: SplitTest | None


@workflow(PromoteSettings)
def promote(settings: PromoteSettings) -> Promotion:
    """Promote the model of a run if a split test shows that it is better and does no harm; otherwise change nothing.
    The conditions of the result say what is missing.

    Raises:
        TutelageError: the folder holds no finished run with a model, the responses cannot be read, the link is no link,
            or there is no promotion to withdraw.
    """
    model = model_of(settings.run)
    if settings.link is not None and settings.link.exists() and not settings.link.is_symlink():
        raise TutelageError(f"--link {settings.link} is not a symbolic link. Give the name of one, or a new name.")
    decisions = read_decisions(settings.run)
    if settings.outcomes is None:
        _withdraw(settings, decisions)
        return Promotion(False, None)
    if decisions and decisions[-1].get("promoted"):
        raise TutelageError(f"{settings.run} is promoted already. Withdraw that with --undo before another decision.")
    with phase("evidence"):
        evidence = evidence_of(settings)
    test = evidence.test
    if test.passed:
        decision = {
            "promoted": True,
            "decided": datetime.now(UTC).isoformat(timespec="seconds"),
            "outcomes": Path(settings.outcomes).name,
            "responses": fingerprint(map(repr, evidence.responses)),
            "required": asdict(evidence.required),
            "test": asdict(test),
        }
        link = settings.link
        if link is not None:
            decision |= {"link": str(link.absolute()), "before": _target(link)}
        _write(settings.run, [*decisions, decision])  # first: after a crash, --undo knows where the link led
        if link is not None:
            try:
                _point(link, str(model.absolute()))
            except TutelageError:
                _write(settings.run, decisions)
                raise
    return Promotion(test.passed, test)


def read_decisions(run: Path) -> list[dict[str, Any]]:
    """Promotions of a run and their withdrawals, oldest first. Raises TutelageError for a damaged file."""
    file = run / PROMOTIONS
    if not file.exists():
        return []
    try:
        decisions: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["decisions"]
    except (ValueError, KeyError, TypeError) as error:
        raise TutelageError(f"{file} cannot be read: {error}. Restore it, or move it away to start over.") from error
    return decisions


def _withdraw(settings: PromoteSettings, decisions: list[dict[str, Any]]) -> None:
    """Withdraw the last promotion: the link leads to the model from before."""
    last = decisions[-1] if decisions else {}
    if not last.get("promoted"):
        raise TutelageError(f"{settings.run} has no promotion to withdraw.")
    link, before = last.get("link"), last.get("before")
    if link is not None:
        place = Path(link)
        target = _target(place)
        if target not in (str((settings.run / MODEL).absolute()), before):  # before: a crash left the link there
            raise TutelageError(
                f"{place} does not lead to {settings.run / MODEL} any more: a later promotion moved it. Withdraw that "
                "one first."
            )
        if before is None:
            place.unlink(missing_ok=True)
        else:
            _point(place, before)
    decisions.append({"promoted": False, "decided": datetime.now(UTC).isoformat(timespec="seconds")})
    _write(settings.run, decisions)


def _write(run: Path, decisions: list[dict[str, Any]]) -> None:
    write_atomically(run / PROMOTIONS, json.dumps({"decisions": decisions}, indent=1) + "\n")
    write_model_card(run)


def _target(link: Path) -> str | None:
    """The path to which a symbolic link leads; None where there is no link."""
    return os.readlink(link) if link.is_symlink() else None


def _point(link: Path, target: str) -> None:
    """Make the link lead to the target, atomically: a reader sees the old model or the new one."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # of a process that was killed
        temporary.symlink_to(target)
        temporary.replace(link)
    except OSError as error:
        raise TutelageError(f"The link {link} cannot be moved: {error.strerror}.") from error
