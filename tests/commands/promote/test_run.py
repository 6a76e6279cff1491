"""Promotions: evidence in the card, the link to the served model, withdrawal, and nothing changed by a refusal."""

import json
import os
from pathlib import Path

import pytest
from offenders import for_each

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.commands import line


@pytest.fixture
def run(tmp_path):
    return made(tmp_path / "candidate")


def made(folder):
    """A finished run with an empty model."""
    (folder / "model").mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"format": "tutelage-run/1", "settings": {"out": folder.name, "unpaired": False}})
    )
    (folder / "summary.json").write_text("{}")
    return folder


@pytest.fixture
def outcomes(tmp_path):
    """A good result: every second user has B, who likes it three times in four, A once in four."""
    rows = (f"{'ab'[n % 2]},{n},{int(n % 8 in (0, 1, 3, 5))}" for n in range(600))
    file = tmp_path / "responses.csv"
    file.write_text("arm,user,outcome\n" + "\n".join(rows) + "\n")
    return file


def test_promotion_and_withdrawal(run, outcomes, tmp_path):
    link, present = tmp_path / "current", made(tmp_path / "present") / "model"
    link.symlink_to(present)
    result = tt.promote(run=run, outcomes=str(outcomes), link=link)
    assert result.promoted
    assert link.resolve() == (run / "model").resolve()
    with pytest.raises(TutelageError, match="already"):
        tt.promote(run=run, outcomes=str(outcomes), link=link)
    card = (run / "model" / "README.md").read_text()
    assert "## Promotion" in card
    assert f"{result.test.difference.value:+.3f}" in card
    withdrawn = tt.promote(run=run, undo=True)
    assert (withdrawn.promoted, withdrawn.test) == (False, None)
    assert link.resolve() == present.resolve()
    assert f"{result.test.difference.value:+.3f}" not in (run / "model" / "README.md").read_text()
    with pytest.raises(TutelageError, match="no promotion"):
        tt.promote(run=run, undo=True)


def test_a_first_link_disappears_again(run, outcomes, tmp_path):
    link = tmp_path / "current"
    tt.promote(run=run, outcomes=str(outcomes), link=link)
    assert link.is_symlink()
    tt.promote(run=run, undo=True)
    assert not os.path.lexists(link)


@pytest.mark.parametrize("first", [True, False])
def test_a_crash_at_any_write_leaves_a_promotion_that_can_be_withdrawn(run, outcomes, tmp_path, monkeypatch, first):
    link, present = tmp_path / "current", made(tmp_path / "present") / "model"
    if not first:
        link.symlink_to(present)
    own = Path.replace

    def crash(path, target):
        if Path(target).name == where:
            raise KeyboardInterrupt
        return own(path, target)

    for where in ("current", "promotions.json"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", crash)
            with pytest.raises(KeyboardInterrupt):
                tt.promote(run=run, outcomes=str(outcomes), link=link)
        if where == "current":
            assert link.exists() == (not first), "the link is moved last"
            tt.promote(run=run, undo=True)
    tt.promote(run=run, outcomes=str(outcomes), link=link)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            tt.promote(run=run, undo=True)
    tt.promote(run=run, undo=True)
    assert os.path.lexists(link) == (not first)
    assert first or link.resolve() == present.resolve()


def test_a_link_that_cannot_be_moved_leaves_no_promotion(run, outcomes, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TutelageError, match="link"):
        tt.promote(run=run, outcomes=str(outcomes), link=tmp_path / "file" / "current")
    with pytest.raises(TutelageError, match="no promotion"):
        tt.promote(run=run, undo=True)


def test_withdrawing_below_a_later_promotion_is_refused(run, outcomes, tmp_path):
    link, later = tmp_path / "current", made(tmp_path / "later")
    for each in (run, later):
        assert tt.promote(run=each, outcomes=str(outcomes), link=link).promoted
    with pytest.raises(TutelageError, match="current"):
        tt.promote(run=run, undo=True)
    tt.promote(run=later, undo=True)
    tt.promote(run=run, undo=True)
    assert not os.path.lexists(link)


def test_missing_evidence_changes_nothing_and_is_named(run, outcomes, tmp_path, capsys):
    link = tmp_path / "current"
    outcomes.write_text("\n".join(outcomes.read_text().splitlines()[:21]) + "\n")
    before = sorted(run.rglob("*"))
    assert line.main(["promote", str(run), "--outcomes", str(outcomes), "--link", str(link)]) == 1
    assert sorted(run.rglob("*")) == before
    assert not os.path.lexists(link)
    assert "20 count" in " ".join(capsys.readouterr().out.split())


@for_each(
    [
        ({}, "--outcomes"),
        ({"outcomes": "x.csv", "undo": True}, "--undo"),
        ({"outcomes": "x.csv", "split": 1.0}, "--split"),
        ({"outcomes": "x.csv", "level": 0.4}, "--level"),
        ({"outcomes": "x.csv", "margin": 1.0}, "--margin"),
        ({"outcomes": "x.csv", "hours": 0.0}, "--hours"),
        ({"outcomes": "x.csv", "tolerance": 0.0}, "--tolerance"),
    ]
)
def test_settings_without_a_meaning_are_refused(settings, part, run):
    with pytest.raises(TutelageError, match=part):
        tt.promote(run=run, **settings)


def test_other_folders_and_links_are_refused(run, outcomes, tmp_path):
    with pytest.raises(TutelageError, match="nowhere"):
        tt.promote(run=tmp_path / "nowhere", outcomes=str(outcomes))
    (tmp_path / "folder").mkdir()
    with pytest.raises(TutelageError, match="--link"):
        tt.promote(run=run, outcomes=str(outcomes), link=tmp_path / "folder")
    (run / "promotions.json").write_text("{")
    with pytest.raises(TutelageError, match=r"promotions\.json"):
        tt.promote(run=run, outcomes=str(outcomes))
