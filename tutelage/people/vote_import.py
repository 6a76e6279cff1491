"""Import of votes from tables, and of preference pairs as questions."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import join_sentences
from tutelage.data.records import (
    AssistantTurn,
    CompletionRecord,
    Messages,
    Preference,
    Prompt,
    RatedSteps,
    spoken,
    stable_id,
    step_value,
)
from tutelage.data.tables import Table
from tutelage.data.traces import TracePair, split_trace, trace_text
from tutelage.data.vote_rows import fold_name, meaning_name
from tutelage.people.kinds.kind import Kind, Screen
from tutelage.people.languages import Sentence
from tutelage.people.store.bulk import AnswerRecord, insert_answers
from tutelage.people.store.engine import Connection, Store
from tutelage.people.store.items import Item, Pool, insert_items
from tutelage.people.store.raters import find_rater, insert_rater, list_raters
from tutelage.people.store.studies import list_versions, study_of
from tutelage.people.table_items import completion_of, item_of, prompt_of
from tutelage.people.validation import StudyError
from tutelage.people.vote_mapping import ChoiceWord, DroppedVotes, ExampleVote, ImportPreview, ImportReport, VoteMapping
from tutelage.people.vote_tables import Dropped, VotesRead, read_votes

EXAMPLES = 5
MOST_WORDS = 20
"""Maximum number of choices in a preview, most frequent first."""


@dataclass(frozen=True)
class ReadyQuestions:
    """Questions from preference pairs or traces, for `add_items`. `identical` counts pairs of equal texts, which are
    omitted."""

    prompts: tuple[Prompt, ...]
    completions: tuple[CompletionRecord, ...]
    items: tuple[Item, ...]
    identical: int = 0


def steps_to_judge(
    records: Iterable[RatedSteps],
    *,
    pool: Pool = "production",
    explanations: Sequence[str] = (),
    most: int | None = None,
) -> ReadyQuestions:
    """Completions in steps as questions, at most `most`. Their labels are the known answer in other pools than
    production: the first step that is more likely wrong than right, or none. `explanations` are those of the records.
    Raises TutelageError if a step up to the known answer has no label, or the same steps have different known
    answers."""
    prompts: dict[str, Prompt] = {}
    completions: dict[str, CompletionRecord] = {}
    items: dict[str, Item] = {}
    for number, record in enumerate(records):
        if len(items) == most:
            break
        prompt = prompt_of(record.messages)
        text = trace_text(record.steps)
        key = stable_id(prompt.id, json.dumps(list(map(step_value, record.steps))))
        completion = CompletionRecord(key, prompt.id, text, "", steps=record.steps)
        has_answer = pool != "production"
        item = Item(
            f"{pool}-{key}" if has_answer else key, prompt.id, (key,), "imported", pool=pool,
            gold=str(_first_wrong(record)) if has_answer else None,
            explanation=explanations[number] if explanations else "",
        )  # fmt: skip
        if item.key in items and items[item.key].gold != item.gold:
            raise TutelageError(
                f"The same steps of a response to '{record.messages[-1].content[:60]}' have different known answers, "
                f"{items[item.key].gold} and {item.gold}; leave one out."
            )
        prompts[prompt.id], completions[key], items[item.key] = prompt, completion, item
    return ReadyQuestions(tuple(prompts.values()), tuple(completions.values()), tuple(items.values()))


def _first_wrong(record: RatedSteps) -> int:
    """The number of the first wrong step, 0 for none."""
    for number, label in enumerate(record.labels, 1):
        if label is None:
            raise TutelageError(
                f"A known answer needs the labels of the steps up to the first wrong one; step {number} of a response "
                f"to '{record.messages[-1].content[:60]}' has none."
            )
        if label < 0.5:
            return number
    return 0


def pairs_to_judge(
    pairs: Iterable[Preference | TracePair], *, origin: str = "imported", most: int | None = None
) -> ReadyQuestions:
    """Preference pairs or pairs of traces as questions, at most `most`. The canonical order depends only on the
    responses, so that it does not reveal the imported label."""
    prompts: dict[str, Prompt] = {}
    completions: dict[str, CompletionRecord] = {}
    items: dict[str, Item] = {}
    identical = 0
    for pair in pairs:
        if len(items) == most:
            break
        if pair.chosen == pair.rejected:
            identical += 1
            continue
        prompt = prompt_of(pair.messages)
        both = [_response(prompt, side) for side in (pair.chosen, pair.rejected)]
        item = item_of(prompt, [completion.id for completion in both], origin)
        prompts[prompt.id], items[item.key] = prompt, item
        completions |= {completion.id: completion for completion in both}
    return ReadyQuestions(tuple(prompts.values()), tuple(completions.values()), tuple(items.values()), identical)


def _response(prompt: Prompt, side: AssistantTurn | Messages) -> CompletionRecord:
    """The record of a response; a turn with calls or thinking is a trace of one step. The id of a trace is of its
    steps, because its text leaves out the thinking."""
    if isinstance(side, tuple) and len(side) == 1:
        side = spoken(side[0])
    if isinstance(side, str):
        return completion_of(prompt, side, "")
    steps = split_trace(side)[1] if isinstance(side, tuple) else ((side,),)
    value = list(map(step_value, steps)) if isinstance(side, tuple) else step_value((side,))
    return CompletionRecord(stable_id(prompt.id, json.dumps(value)), prompt.id, trace_text(steps), "", steps=steps)


def study_screen(store: Store, study_id: int) -> Screen:
    """The screen for pairs in the first version of a study, which imported votes are attributed to."""
    version = list_versions(store, study_id)[0]
    return Screen(2, version.scale, version.criteria)


def preview_import(store: Store, study_id: int, table: Table, mapping: VoteMapping) -> ImportPreview:
    """Read the votes of a table without storing them. Raises TutelageError if a column is missing."""
    kind = study_of(store, study_id).kind
    read = read_votes(table, mapping, kind, study_screen(store, study_id))
    names = {fold_name(rater.name) for rater in list_raters(store, study_id)}
    raters = {vote.rater for vote in read.votes}
    words = sorted(read.words.items(), key=lambda each: (-each[1], each[0]))
    listed = tuple(ChoiceWord(word, count, read.meanings.get(word, "")) for word, count in words[:MOST_WORDS])
    return ImportPreview(
        mapping,
        len(read.votes),
        len(raters),
        sum(fold_name(rater) not in names for rater in raters),
        len(read.items),
        listed,
        len(words) - len(listed),
        sum(count for count, _ in read.faults.values()),
        _dropped(read),
        read.remarks,
        tuple(_example(read, vote, kind) for vote in read.votes[:EXAMPLES]),
    )


def _example(read: VotesRead, vote: AnswerRecord, kind: Kind) -> ExampleVote:
    item = read.items[vote.item]
    first, *others = (read.completions[item.responses[side]].text for side in vote.sides)
    means = vote.answer.choice
    if kind.traits.sides:
        means = meaning_name({"left": "a", "right": "b"}.get(means, means), vote.answer.strength)
    return ExampleVote(read.prompts[item.prompt].messages[-1].content, first, next(iter(others), ""), vote.rater, means)


def import_votes(
    store: Store, study_id: int, table: Table, mapping: VoteMapping, *, actor: str = "owner"
) -> ImportReport:
    """Import the votes of a table (`data.tables.read_table`), atomically, with their prompts, responses, items and
    raters. Importing a table again adds nothing. A second vote of a rater on a pair is a revision: the last one is in
    force. Raises TutelageError if a column is missing, no vote is usable, or, without `partial`, some vote is
    unusable."""
    study = study_of(store, study_id)
    read = usable_votes(table, mapping, study.kind, study_screen(store, study_id))
    now = store.now()
    with store.write(alone=True) as connection:
        added = insert_items(
            connection, study_id, read.prompts.values(), read.completions.values(), read.items.values(), now, actor
        )
        names, new = _raters(connection, study_id, read, table.source, now, actor)
        votes = [replace(vote, rater=names[vote.rater]) for vote in read.votes]
        written, known = insert_answers(
            connection, study_id, votes, now, source=table.source, actor=actor, rejected=read.rejected
        )
    revised = len(votes) - len({(vote.item, vote.rater) for vote in votes})
    return ImportReport(written, revised, known, added.items, new, _dropped(read), read.remarks)


def _dropped(read: VotesRead) -> tuple[DroppedVotes, ...]:
    kinds = ((True, read.faults), (False, read.left_out))
    return tuple(
        DroppedVotes(reason, fault, count, places)
        for fault, reasons in kinds
        for reason, (count, places) in reasons.items()
    )


def _list_reasons(dropped: Dropped) -> str:
    """The reasons why votes are unusable, with their first locations, in one sentence."""
    return join_sentences(
        Sentence(
            "%(reason)s (%(count)s: %(places)s)",
            reason=reason,
            count=count,
            places=", ".join(places) + (", …" if count > len(places) else ""),
        )
        for reason, (count, places) in dropped.items()
    )


def usable_votes(table: Table, mapping: VoteMapping, kind: Kind, screen: Screen) -> VotesRead:
    """The votes of a table for import. Raises the same errors as `import_votes`."""
    read = read_votes(table, mapping, kind, screen)
    reasons = _list_reasons(read.faults if read.votes else read.dropped)
    if not read.votes:
        raise StudyError(
            "No row of %(source)s holds a vote that can be used: %(reasons)s.",
            source=str(table.source),
            reasons=reasons,
        )
    if read.faults and not mapping.partial:
        count = sum(number for number, _ in read.faults.values())
        raise StudyError(
            "Nothing was imported: %(count)s of the votes in %(source)s cannot be used: %(reasons)s. Say what "
            "choices mean (--choice 1=a), or leave such votes out (--partial).",
            count=count,
            source=str(table.source),
            reasons=reasons,
        )
    return read


def _raters(
    connection: Connection, study_id: int, read: VotesRead, source: str, now: int, actor: str
) -> tuple[dict[str, str], int]:
    """The raters' names in the study by their names in the table, and the number of raters created."""
    names, new = {}, 0
    for name in dict.fromkeys(vote.rater for vote in read.votes):
        rater = find_rater(connection, study_id, name)
        if rater is None:
            rater = insert_rater(connection, study_id, name, now=now, detail={"source": source}, actor=actor)
            new += 1
        names[name] = rater.name
    return names, new
