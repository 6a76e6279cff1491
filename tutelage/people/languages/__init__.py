"""The languages of what raters and owners see.

sentences.py     Sentence, counted, Share: texts of the program that can be said in another language later
catalogue.py     LANGUAGES; say(text, language), words of templates and scripts, dates and numbers
extraction.py    the catalogues brought up to date with the sources (python -m tutelage.people.languages.extraction)
de.po, …         the translations; English is what stands in the sources
"""

from tutelage.people.languages.catalogue import (
    ENGLISH,
    LANGUAGES,
    Language,
    check_languages,
    choose_language,
    say,
)
from tutelage.people.languages.sentences import Sentence, Share, counted

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
