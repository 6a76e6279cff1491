"""The standard text about consent: what it says, and who is asked again when that changes."""

from pathlib import Path

import pytest

from tutelage.people import Store, add_rater, consent, get_rater, restoration
from tutelage.people.export import export_study
from tutelage.people.languages import LANGUAGES
from tutelage.people.restoration import import_export
from tutelage.people.settings import Consent
from tutelage.people.store.consents import agree, ask_consent, is_standard, keep_texts, shown_text, text_hash
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.store.studies import study_of
from tutelage.people.web.pages.participation import must_agree

from .. import worlds

STANDARD = {
    False: "58963e59ebe589bdb12cb1f01a2d4b3d5ab719626897af89e0741c7ede8a3b13",
    True: "7ecd7299fd8270767d35ebc33ff26dff6067de93272733bcb375d4837fe456e0",
}
"""The hashes of the English text, by whether raters talk to models. Raters agreed to what they read: a change of the
text after 0.1.0 needs a revision of the tables that calls for what `renew_consent` does, and `is_standard` has to know
the former text as well."""


@pytest.mark.parametrize("live", [False, True])
def test_a_changed_standard_text_is_noticed(live: bool) -> None:
    assert text_hash(shown_text(Consent(), live=live)) == STANDARD[live]


WORDS = {
    "en": "better response",
    "de": "bessere Antwort",
    "es": "respuesta mejor",
    "zh": "更好的回答",
    "ar": "الإجابة الأفضل",
}


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_text_says_in_every_language_that_better_responses_are_learnt_from(language: str, live: bool) -> None:
    text = shown_text(Consent(), live=live, language=language)
    assert WORDS[language] in text
    assert is_standard(text)
    assert not is_standard(text + text)


def test_raters_are_asked_again_once_they_would_talk_to_models(store: Store) -> None:
    """What they write to them is learnt from, which the text says from then on."""
    study = worlds.study_of(store, 2)
    (rater,) = worlds.raters_of(store, study, 1)
    set_live_models(store, study.id, LiveModels("one", "other"))
    assert study_of(store, study.id).consent == 0  # nobody had agreed to anything
    agree(store, rater, "en", live=True)
    other = worlds.study_of(store, 2, name="other")
    (early,) = worlds.raters_of(store, other, 1)
    agree(store, early, "en", live=False)
    set_live_models(store, other.id, LiveModels("one", "other"))
    set_live_models(store, other.id, LiveModels("one", "another"))
    assert study_of(store, other.id).consent == 1
    assert must_agree(get_rater(store, early), study_of(store, other.id))
    assert not must_agree(get_rater(store, rater), study_of(store, study.id))


@pytest.mark.parametrize("rules", [None, Consent("", "erase", 90)])
def test_a_restored_study_asks_again_who_agreed_to_a_former_text(
    store: Store, folder: Path, rules: Consent | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody else; what they agreed to is kept as they read it, with its rules."""
    study = worlds.study_of(store, 2)
    if rules is not None:
        ask_consent(store, study.id, rules)
    number = study_of(store, study.id).consent
    new = add_rater(store, study.id, "new").id
    agree(store, new, "de", live=False)
    export_study(store, study.id, folder / "present")
    again = import_export(store, folder / "present", name="present")
    assert again.consent == number

    old, former = (
        add_rater(store, study.id, "old").id,
        shown_text(Consent(), live=False, language="de").replace("bessere Antwort", "Antwort"),
    )
    monkeypatch.setattr(restoration, "is_standard", lambda text: text == former or is_standard(text))
    keep_texts(store, study.id, [former])
    consent(store, old, language="de", sha256=text_hash(former))
    made = export_study(store, study.id, folder / "former").manifest["consents"]
    again = import_export(store, folder / "former", name="former")
    assert again.consent == number + 1
    second = export_study(store, again.id, folder / "second").manifest["consents"]
    assert {row["text"] for row in second if row["version"] == number} == {
        row["text"] for row in made if row["version"] is not None
    }
    assert former in {row["text"] for row in second if row["version"] == number}
    assert not any(row["raters"] for row in second if row["version"] == again.consent)
    if rules is not None:
        assert {(row["votes"], row["retention_days"]) for row in second if row["version"]} == {("erase", 90)}
