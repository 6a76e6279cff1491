"""Small studies to test with."""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from pictures import png

from tutelage.data.images import image_file
from tutelage.data.records import Comparison, CompletionRecord, Prompt, user
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Plan,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    list_votes,
    next_assignment,
    open_store,
    open_study,
    submit,
)
from tutelage.people.store import migrations
from tutelage.people.store.visits import places_taken

QUIET = Plan(overlap=2, gold_rate=0.0, repeat_rate=0.0)
"""No golds and no repeats: every question is a production item."""
SECRET = "5a" * 32


class Clock:
    """A clock that moves a little with every look, and as far as it is told to."""

    def __init__(self, seconds: float = 1_700_000_000.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        self.seconds += 0.001
        return self.seconds


def opened(path: Path, clock: Callable[[], float], database: bytes | None = None) -> Store:
    """A store in a file that is not there yet: a copy of `database`, or as `open_store` makes it, with tables that are
    made once and copied."""
    path.write_bytes(database or _empty_database())
    return open_store(path, create=False, clock=clock)


@cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.sqlite"
        open_store(path).close()
        return path.read_bytes()


def open_and_read(path: str, scripts: str | None = None) -> None:
    """Open a study by the program whose revisions lie in a folder: what a process of its own does."""
    if scripts is not None:
        migrations.FOLDER = Path(scripts)
    store = open_store(path)
    assert list_votes(store, open_study(store).id)
    store.close()


def records(count: int, start: int = 0) -> tuple[list[Prompt], list[CompletionRecord], list[Comparison]]:
    """`count` pairs; the text of response b of pair 7 is "good 7", that of a is "bad 7, and longer"."""
    numbers = range(start, start + count)
    prompts = [Prompt(f"p{n}", user(f"Question {n}?")) for n in numbers]
    completions = [CompletionRecord(f"p{n}a", f"p{n}", f"bad {n}, and longer", "old-model") for n in numbers]
    completions += [CompletionRecord(f"p{n}b", f"p{n}", f"good {n}", "new-model") for n in numbers]
    return prompts, completions, [Comparison(f"c{n}", f"p{n}", f"p{n}a", f"p{n}b") for n in numbers]


def study_of(store: Store, pairs: int, plan: Plan = QUIET, name: str = "tutoring") -> Study:
    """A study with so many pairs."""
    study = create_study(store, name, plan=plan, secret=SECRET)
    add_items(store, study.id, *records(pairs))
    return study


def add_pictures(store: Store, study: Study) -> tuple[str, str]:
    """Add a pair with the key "pictures": its prompt has an image, and its first response another; their names."""
    shown, drawn = image_file(png()), image_file(png(shade=1))
    prompts = [Prompt("pp", user(f"What is this?\n\n![a field](images/{shown.name})"))]
    texts = {"ppa": f"It is\n\n![](images/{drawn.name})", "ppb": "A field."}
    completions = [CompletionRecord(key, "pp", text, "new-model") for key, text in texts.items()]
    add_items(store, study.id, prompts, completions, [Item("pictures", "pp", ("ppa", "ppb"))], images=(shown, drawn))
    return shown.name, drawn.name


def raters_of(store: Store, study: Study, count: int, start: int = 0) -> list[int]:
    """So many raters; their numbers."""
    return [add_rater(store, study.id, f"rater {n}").id for n in range(start, start + count)]


def asked(store: Store, rater_id: int) -> Assignment:
    """The next question, which must exist."""
    question = next_assignment(store, rater_id)
    assert question is not None
    return question


def better(question: Assignment, strength: int = 2) -> Answer:
    """What someone answers who knows the good response."""
    return Answer("left" if question.left.startswith("good") else "right", strength)


def work(store: Store, raters: Sequence[int], answer: Callable[[Assignment], Answer] = better) -> list[Assignment]:
    """Let the raters take turns until nobody is asked anything more; the questions in the order they were asked."""
    questions: list[Assignment] = []
    busy = list(raters)
    while busy:
        for rater_id in tuple(busy):
            question = next_assignment(store, rater_id)
            if question is None:
                busy.remove(rater_id)
                continue
            submit(store, question.id, answer(question))
            questions.append(question)
    return questions


def item_rows(pairs: int, **changes: object) -> list[Item]:
    """The pairs of `records` as items, changed."""
    return [dataclasses.replace(Item.of(c), **changes) for c in records(pairs)[2]]  # type: ignore[arg-type]


def novice_of(store: Store, study: Study) -> int:
    """The id of a new rater who has two practice questions to answer first."""
    prompts, completions, _ = records(2)
    practice = [dataclasses.replace(row, key=f"practice {row.key}") for row in item_rows(2, pool="training", gold="b")]
    add_items(store, study.id, prompts, completions, practice)
    return add_rater(store, study.id, "novice", training=True).id


def places_of(store: Store, study: Study) -> int:
    """How many places of the study are taken by visits."""
    with store.read() as connection:
        return places_taken(connection, study.id)
