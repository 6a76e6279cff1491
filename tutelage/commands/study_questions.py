"""Questions for a study: from ready pairs, from what `tutelage sample` wrote, by sampling, or with known answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.settings import Init
from tutelage.data.records import Comparison, CompletionRecord, Prompt

if TYPE_CHECKING:
    from tutelage.people import Item
    from tutelage.people.store.items import Pool


@dataclass(frozen=True)
class Questions:
    """Questions for a study, and a sentence about each of their sources."""

    prompts: tuple[Prompt, ...] = ()
    completions: tuple[CompletionRecord, ...] = ()
    items: "tuple[Item, ...]" = ()
    told: tuple[str, ...] = ()

    def __add__(self, other: "Questions") -> "Questions":
        return Questions(
            self.prompts + other.prompts,
            self.completions + other.completions,
            self.items + other.items,
            self.told + other.told,
        )


def main_questions(settings: Init) -> Questions:
    if settings.from_pairs:
        return _ready_pairs(settings)
    if settings.from_sample is not None:
        return _sampled_before(settings)
    if settings.prompts and not settings.live:
        return _sampled_now(settings)
    return Questions()


def _ready_pairs(settings: Init) -> Questions:
    from tutelage.data.formats import load_preferences
    from tutelage.people.vote_import import pairs_to_judge

    loaded = load_preferences(settings.from_pairs)
    found = pairs_to_judge(loaded.records[: settings.limit])
    told = [loaded.describe()]
    if found.identical:
        told.append(f"left out: {counted(found.identical, 'pair')} of equal texts")
    items = tuple(replace(item, round=settings.round) for item in found.items)
    return Questions(found.prompts, found.completions, items, tuple(told))


def _sampled_before(settings: Init) -> Questions:
    from tutelage.data.formats import load_comparisons, load_completions, load_prompts

    folder = settings.from_sample
    assert folder is not None, "the caller has looked"
    needed = ("prompts", "completions") if settings.answers else ("prompts", "completions", "comparisons")
    missing = [name for name in needed if not (folder / f"{name}.jsonl").is_file()]
    if missing:
        raise TutelageError(
            f"{folder} has no {' and no '.join(f'{name}.jsonl' for name in missing)}: let `tutelage sample --pairs 1 "
            f"--out {folder}` write it."
        )
    prompts = load_prompts(folder / "prompts.jsonl").records[: settings.limit]
    kept = {prompt.id for prompt in prompts}
    completions = [c for c in load_completions(folder / "completions.jsonl").records if c.prompt_id in kept]
    if settings.answers is not None:
        items = _sets(settings, completions, str(folder))
    else:
        comparisons = load_comparisons(folder / "comparisons.jsonl").records
        items = _items([c for c in comparisons if c.prompt_id in kept], settings.round)
    told = f"{folder}: {_named(items, settings)} for {counted(len(prompts), 'prompt')}"
    return Questions(prompts, _asked(completions, items), items, (told,))


def _sampled_now(settings: Init) -> Questions:
    from tutelage.data.formats import load_prompts

    loaded = load_prompts(settings.prompts)
    prompts = loaded.records[: settings.limit]
    paths = [path for path in (settings.model, settings.against) if path]
    each = -(-(settings.answers or 2) * settings.pairs // len(paths))
    sampled = [_answers(settings, path, prompts, each) for path in paths]
    answers = [[one for one in some if one.text.strip() and "\0" not in one.text] for some in sampled]
    silent = sum(map(len, sampled)) - sum(map(len, answers))
    every = [completion for some in answers for completion in some]
    if settings.answers is not None:
        items = _sets(settings, every, " and ".join(paths))
    else:
        items = _items(_pairs(settings, answers), settings.round)
    told = [loaded.describe(), f"{_named(items, settings)} by {' and '.join(paths)}"]
    if silent:
        told.append(f"left out: {counted(silent, 'answer')} without anything that could be shown")
    return Questions(prompts, _asked(every, items), items, tuple(told))


def _pairs(settings: Init, answers: Sequence[Sequence[CompletionRecord]]) -> Sequence[Comparison]:
    """Pairs of one model's answers, or of an answer of each of two."""
    from tutelage.data.pairing import pair_completions

    if settings.against:
        pairs = across(answers[0], answers[1])
    else:
        pairs = pair_completions(answers[0], pairs_per_prompt=settings.pairs, rng_seed=settings.seed)
    if not pairs:
        paths = " and ".join(path for path in (settings.model, settings.against) if path)
        raise TutelageError(
            f"{paths} gave nothing but equal answers to these prompts, so there is nothing to compare. "
            "Another --seed or a higher --sampling.temperature may help."
        )
    return pairs


def _sets(settings: Init, completions: Sequence[CompletionRecord], source: str) -> "tuple[Item, ...]":
    """Sets of different answers to one prompt, as questions."""
    from tutelage.data.pairing import group_completions
    from tutelage.data.records import stable_id
    from tutelage.people import Item

    assert settings.answers is not None, "the caller has looked"
    groups = group_completions(
        completions, size=settings.answers, groups_per_prompt=settings.pairs, rng_seed=settings.seed
    )
    if not groups:
        raise TutelageError(
            f"{source} gave no prompt {counted(settings.answers, 'different answer')} {_task(settings)}. Sample more "
            "of them, or give a lower --answers."
        )
    return tuple(Item(stable_id(key, *ids), key, ids, round=settings.round) for key, ids in groups)


def _named(items: "Sequence[Item]", settings: Init) -> str:
    """How many questions of which kind."""
    if settings.answers is None:
        return f"{counted(len(items), 'pair')} of different answers"
    return f"{counted(len(items), 'set')} of {counted(settings.answers, 'answer')} {_task(settings)}"


def _task(settings: Init) -> str:
    from tutelage.people.kinds import find_kind

    return find_kind(settings.kind).traits.task


def _asked(completions: Iterable[CompletionRecord], items: "Iterable[Item]") -> tuple[CompletionRecord, ...]:
    """The answers that somebody is asked about."""
    asked = {key for item in items for key in item.responses}
    return tuple(completion for completion in completions if completion.id in asked)


def _answers(settings: Init, path: str, prompts: Sequence[Prompt], n: int) -> list[CompletionRecord]:
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.rollout.inference.completion_records import records_of, sample_completions

    policy = Policy(load_backbone(config.Model(path=path, engine=settings.engine)))
    answered = sample_completions(policy, prompts, n, settings.sampling, seed=settings.seed)
    return records_of(answered, path, settings.sampling)


def across(first: Sequence[CompletionRecord], second: Sequence[CompletionRecord]) -> list[Comparison]:
    """Each answer of one model beside one of the other to the same prompt, those with equal texts left out."""
    from tutelage.data.records import stable_id

    of_second: dict[str, list[CompletionRecord]] = {}
    for completion in second:
        of_second.setdefault(completion.prompt_id, []).append(completion)
    pairs = []
    for one in first:
        rivals = of_second.get(one.prompt_id, [])
        other = rivals.pop(0) if rivals else None
        if other is not None and other.text.strip() != one.text.strip():
            # which of the two is a must not tell which model it is of
            a, b = sorted((one.id, other.id))
            pairs.append(Comparison(stable_id(one.prompt_id, a, b), one.prompt_id, a, b, "against"))
    return pairs


def _items(comparisons: Iterable[Comparison], number: int) -> "tuple[Item, ...]":
    from tutelage.people import Item

    return tuple(Item.of(comparison, number) for comparison in comparisons)


def known_questions(source: str, pool: "Pool") -> Questions:
    """Preferences as questions whose answer is known: the chosen one."""
    if not source:
        return Questions()
    from tutelage.data.formats import load_preferences
    from tutelage.data.tables import read_table
    from tutelage.people.vote_import import pairs_to_judge

    loaded = load_preferences(source)
    explained = {
        str(row.values.get("chosen")): str(row.values["explanation"])
        for row in read_table(source).rows
        if row.values.get("explanation")
    }
    chosen = {preference.chosen for preference in loaded.records}
    found = pairs_to_judge(loaded.records, origin=pool)
    texts = {completion.id: completion.text for completion in found.completions}
    items = []
    for item in found.items:
        right = [name for name, key in zip("ab", item.responses, strict=True) if texts[key] in chosen]
        if len(right) != 1:
            raise TutelageError(f"{source} chooses both sides of a pair: '{texts[item.responses[0]][:60]}'.")
        text = texts[item.responses["ab".index(right[0])]]
        items.append(
            replace(
                item, key=f"{pool}-{item.key}", pool=pool, gold=right[0], explanation=explained.get(text, "")
            )
        )
    return Questions(found.prompts, found.completions, tuple(items), (f"{loaded.describe()} ({pool})",))
