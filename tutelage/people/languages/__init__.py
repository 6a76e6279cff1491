"""Translations of the web application: of each `Sentence`, template and script.

catalogue.py     LANGUAGES; say(text, language), messages of templates and scripts, dates and numbers
extraction.py    update of the catalogues from the sources (python -m tutelage.people.languages.extraction)
de.po, …         translations; the sources are in English
"""

from tutelage.base.sentences import Sentence, Share, counted
from tutelage.people.languages.catalogue import ENGLISH, LANGUAGES, Language, check_languages, choose_language, say

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
