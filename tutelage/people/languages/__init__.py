"""The languages of what raters and owners see: of each `Sentence`, template and script.

catalogue.py     LANGUAGES; say(text, language), words of templates and scripts, dates and numbers
extraction.py    the catalogues brought up to date with the sources (python -m tutelage.people.languages.extraction)
de.po, …         the translations; English is what stands in the sources
"""

from tutelage.base.sentences import Sentence, Share, counted
from tutelage.people.languages.catalogue import (
    ENGLISH,
    LANGUAGES,
    Language,
    check_languages,
    choose_language,
    say,
)

__all__ = [
    "ENGLISH",
    "LANGUAGES",
    "Language",
    "Sentence",
    "Share",
    "check_languages",
    "choose_language",
    "counted",
    "say",
]
