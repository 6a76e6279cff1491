"""Kinds of questions in studies. A new kind consists of a module here, a template and a script (see `Kind`), and its
entry in `KINDS`; no other code refers to kinds by name."""

from collections.abc import Mapping

from tutelage.base.sentences import Sentence
from tutelage.people.kinds.checklist import CHECKLIST
from tutelage.people.kinds.kind import Kind
from tutelage.people.kinds.likert import LIKERT
from tutelage.people.kinds.pair import PAIR
from tutelage.people.kinds.ranking import RANKING
from tutelage.people.kinds.steps import STEPS
from tutelage.people.kinds.thumbs import THUMBS
from tutelage.people.validation import find_named

DEFAULT: Kind = PAIR
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (DEFAULT, RANKING, LIKERT, STEPS, CHECKLIST, THUMBS)}


def find_kind(name: str) -> Kind:
    """The kind with this name. Raises FieldError if there is none."""
    refusal = Sentence("There is no kind of question “%(given)s”; a study is of kind %(known)s.")
    return find_named("kind", name, KINDS, refusal)
