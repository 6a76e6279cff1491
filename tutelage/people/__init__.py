"""People in the loop: collecting preferences, without HTTP. Everything takes an open `Store` first.

    store = open_store("demo/study.sqlite")                  # or postgresql://…
    study = create_study(store, "demo")                      # or open_study(store)
    add_items(store, study.id, prompts, completions, comparisons)        # records; an Item says more than a Comparison
    rater = add_rater(store, study.id, "anna", kind="simulated")

    while (question := next_assignment(store, rater.id)) is not None:
        question.messages, question.left, question.right, question.item, question.lease_ends
        submit(store, question.id, Answer("left", strength=2))           # left right tie both_bad skip

    list_judgements(store, study.id)       # -> tuple[Judgement], canonical
    preferences(store, study.id)           # -> tuple[Preference], p_chosen from rater-aware aggregation

Times inside are milliseconds since the epoch; ids of studies, raters and assignments are integers of this database,
keys of prompts, responses and items are the caller's own. What a rater may see is in `Assignment`, and only there.
"""

from tutelage.people.answers import Answer, new_key
from tutelage.people.assign import next_assignment, release, renew, why_nothing
from tutelage.people.preferences import Selection, preferences
from tutelage.people.store.engine import Store, Unavailable
from tutelage.people.store.items import Item, add_items, set_overlap
from tutelage.people.store.judgements import Vote, list_judgements, list_votes
from tutelage.people.store.opening import open_store
from tutelage.people.store.questions import Assignment, Question, list_questions
from tutelage.people.store.raters import Rater, add_rater, find_rater, get_rater, list_raters
from tutelage.people.store.studies import (
    Plan,
    Presentation,
    Study,
    create_study,
    list_studies,
    open_study,
    present,
    replan,
    set_state,
)
from tutelage.people.submit import Receipt, submit

__all__ = [
    "Answer",
    "Assignment",
    "Item",
    "Plan",
    "Presentation",
    "Question",
    "Rater",
    "Receipt",
    "Selection",
    "Store",
    "Study",
    "Unavailable",
    "Vote",
    "add_items",
    "add_rater",
    "create_study",
    "find_rater",
    "get_rater",
    "list_judgements",
    "list_questions",
    "list_raters",
    "list_studies",
    "list_votes",
    "new_key",
    "next_assignment",
    "open_store",
    "open_study",
    "preferences",
    "present",
    "release",
    "renew",
    "replan",
    "set_overlap",
    "set_state",
    "submit",
    "why_nothing",
]
