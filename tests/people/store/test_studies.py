"""The languages of a study: kept, changed with an event, and part of no version."""

from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.people import Store, create_study, list_events, open_study, set_languages
from tutelage.people.export import export_study
from tutelage.people.restoration import import_export

from ..worlds import study_of


def test_a_study_is_in_english_unless_it_is_said_otherwise(store: Store) -> None:
    assert study_of(store, 1).languages == ("en",)
    assert create_study(store, "more", languages=("ar", "en")).languages == ("ar", "en")
    with pytest.raises(TutelageError, match="'xx'"):
        create_study(store, "none", languages=("xx",))


def test_a_change_of_languages_leaves_an_event_and_no_new_version(store: Store) -> None:
    study = study_of(store, 1)
    changed = set_languages(store, study.id, ("de", "en"), actor="Mia")
    assert (changed.languages, changed.version) == (("de", "en"), study.version)
    set_languages(store, study.id, ("de", "en"), actor="Mia")
    (event,) = list_events(store, study.id, action="study_languages")
    assert event.actor == "Mia"
    assert event.detail == {"languages": ["de", "en"], "before": ["en"]}
    with pytest.raises(TutelageError, match="language"):
        set_languages(store, study.id, ())
    assert open_study(store).languages == ("de", "en")


def test_an_export_keeps_the_languages(lite: Store, folder: Path) -> None:
    study = study_of(lite, 2)
    set_languages(lite, study.id, ("ar", "de"))
    export_study(lite, study.id, folder / "out")
    assert import_export(lite, folder / "out", name="again").languages == ("ar", "de")
