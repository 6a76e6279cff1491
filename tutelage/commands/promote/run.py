"""Promotion of a model on the evidence of a split test, from a table of responses or the study that kept them."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.commands.calls import workflow
from tutelage.commands.promote.settings import PromoteSettings
from tutelage.commands.results import MODEL, model_of
from tutelage.commands.study import study_address, with_password
from tutelage.commands.study_data import fingerprint as folder_fingerprint
from tutelage.data.record_files import fingerprint
from tutelage.report.model_card import write_model_card
from tutelage.report.provenance import PROMOTIONS
from tutelage.stats.split_test import Requirements, Response, SplitTest, read_responses, split_test, trials_of

MARKS = {True: "met", False: "not met", None: "not checked"}


class NoResponses(TutelageError):
    """A study has no responses of the candidate's split test."""


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
        responses, required, test = evidence_of(settings)
    if test.passed:
        decisions.append(
            {
                "promoted": True,
                "decided": datetime.now(UTC).isoformat(timespec="seconds"),
                "outcomes": Path(settings.outcomes).name,
                "responses": fingerprint(map(repr, responses)),
                "required": asdict(required),
                "test": asdict(test),
                **_moved(settings.link, model),
            }
        )
        _write(settings.run, decisions)
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
        if not place.is_symlink() or os.readlink(place) != str((settings.run / MODEL).absolute()):
            raise TutelageError(
                f"{place} does not lead to {settings.run / MODEL} any more: a later promotion moved it. Withdraw that "
                "one first."
            )
        if before is None:
            place.unlink()
        else:
            _point(place, before)
    decisions.append({"promoted": False, "decided": datetime.now(UTC).isoformat(timespec="seconds")})
    _write(settings.run, decisions)


def _write(run: Path, decisions: list[dict[str, Any]]) -> None:
    write_atomically(run / PROMOTIONS, json.dumps({"decisions": decisions}, indent=1) + "\n")
    write_model_card(run)


def _moved(link: Path | None, model: Path) -> dict[str, str | None]:
    """Move the link to the model. Returns the link and its target from before."""
    if link is None:
        return {}
    before = os.readlink(link) if link.is_symlink() else None
    _point(link, str(model.absolute()))
    return {"link": str(link.absolute()), "before": before}


def _point(link: Path, target: str) -> None:
    """Make the link lead to the target, atomically: a reader sees the old model or the new one."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary.symlink_to(target)
        temporary.replace(link)
    except OSError as error:
        raise TutelageError(f"The link {link} cannot be moved: {error.strerror}.") from error


def evidence_of(settings: PromoteSettings) -> tuple[Sequence[Response], Requirements, SplitTest]:
    """The responses that the settings of a promotion name, what is required of the candidate, and the result; nothing
    is decided.

    Raises:
        NoResponses: the study has none of this candidate.
        TutelageError: the responses cannot be read.
    """
    assert settings.outcomes is not None, "the settings are of a promotion"
    responses, notes = _responses(settings, settings.outcomes)
    required = Requirements(
        level=settings.level,
        margin=settings.margin,
        split=settings.split,
        tolerance=settings.tolerance,
        slow=settings.slow,
        hours=settings.hours,
    )
    return responses, required, split_test(responses, required, notes)


def condition_lines(test: SplitTest) -> list[str]:
    """The conditions of a promotion in columns: the name, whether it is met, and what was found."""
    rows = [(each.name, MARKS[each.met], each.finding) for each in test.conditions]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{name:{widths[0]}}  {met:{widths[1]}}  {finding}" for name, met, finding in rows]


def _responses(settings: PromoteSettings, outcomes: str) -> tuple[Sequence[Response], tuple[str, ...]]:
    """The responses of a table, or those of a study in which `tutelage serve --against` kept them."""
    address = study_address(outcomes)
    if address is None:
        return read_responses(outcomes)
    from tutelage.people import open_store, open_study
    from tutelage.people.store.completions import list_outcomes, list_trials

    with closing(open_store(with_password(address), create=False)) as store:
        study = open_study(store, settings.study or None)
        candidate, trials = weights_name(str(settings.run / MODEL)), list_trials(store, study.id)
        of_candidate = trials_of(candidate, settings.split, trials)
        if not of_candidate:
            raise NoResponses(
                f"'{study.name}' has no responses of a split test of {candidate} with --split {settings.split:g}. Its "
                f"tests: {'; '.join(trials) or 'none'}. Serve the candidate with `tutelage serve --against "
                f"{settings.run / MODEL} --split {settings.split:g} --feedback STUDY`; other weights, and another "
                "split, are another test."
            )
        rows = list_outcomes(store, study.id, of_candidate[-1])
    earlier = (f"Not counted, because the present model was another one: {name}" for name in of_candidate[:-1])
    return rows, tuple(earlier)


def weights_name(model: str) -> str:
    """A model in a split test: its folder as an absolute path with the fingerprint of the weights, or its name on the
    hub."""
    path = Path(model).expanduser()
    return f"{path.resolve()} ({folder_fingerprint(path)})" if path.is_dir() else model


def main(settings: PromoteSettings) -> int:
    """Decide and print. The status is 1 if the model is not promoted."""
    result = promote(settings)
    if settings.json:
        print(json.dumps(asdict(result), indent=1))
    elif result.test is None:
        print(f"The promotion of {settings.run} is withdrawn.")
    else:
        for line in condition_lines(result.test):
            print(line)
        for note in result.test.notes:
            print(note)
        if result.test.pending:
            pending = counted(result.test.pending, "user", "is")
            print(f"{pending} within the first {settings.hours:g} hours and not counted yet.")
        print(
            f"{settings.run} is promoted; its card has the evidence."
            if result.promoted
            else f"{settings.run} is not promoted. Nothing was changed."
        )
    return 0 if result.promoted or settings.undo else 1
