"""Findings: what the report remarks beside its figures, without the page."""

from html import unescape
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.report.page import write_report
from tutelage.report.stage_figures import findings_in

from . import fake_round


def test_the_findings_are_those_of_the_page(tmp_path: Path) -> None:
    folder = fake_round.make_round(tmp_path / "hacked", hacked=True)
    page = unescape(write_report(folder).read_text(encoding="utf-8"))
    found = findings_in(folder)
    assert ("improve", "Gold") in [(one.stage, one.subject) for one in found]
    for one in found:
        assert one.sentence.split("“")[0][:60] in page


def test_policy_optimisation_that_goes_well_has_none(tmp_path: Path) -> None:
    folder = fake_round.make_round(tmp_path / "healthy")
    assert {one.stage for one in findings_in(folder)} == {"reward"}, "its held-out loss turns up at the end"
    assert findings_in(folder / "improve") == ()


def test_what_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    folder = fake_round.make_round(tmp_path / "damaged")
    (folder / "improve" / "summary.json").write_text("{")
    assert [one.subject for one in findings_in(folder / "improve")] == ["files"]
    assert ("improve", "files") in [(one.stage, one.subject) for one in findings_in(folder)]


def test_a_run_that_stopped_before_its_first_step_is_not_called_sound(tmp_path: Path) -> None:
    folder = fake_round.make_round(tmp_path / "begun")
    (folder / "improve" / "metrics.jsonl").write_text("")
    (folder / "improve" / "summary.json").unlink()
    assert "status" in [one.subject for one in findings_in(folder / "improve")]


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="neither a run"):
        findings_in(tmp_path)
