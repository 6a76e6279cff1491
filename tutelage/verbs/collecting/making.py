"""Making a study: the questions, and how they are asked."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tutelage.data.records import Comparison, Completion, Prompt
from tutelage.errors import TutelageError
from tutelage.verbs.collect import Init
from tutelage.verbs.collecting.lineage import lineage_of
from tutelage.verbs.collecting.place import database, new_name

if TYPE_CHECKING:
    from tutelage.people import Item, Presentation, Store, Study
    from tutelage.people.store.items import Pool


@dataclass(frozen=True)
class Questions:
    """What is to be asked, and a sentence about each source."""

    prompts: tuple[Prompt, ...] = ()
    completions: tuple[Completion, ...] = ()
    items: "tuple[Item, ...]" = ()
    told: tuple[str, ...] = ()

    def __add__(self, other: "Questions") -> "Questions":
        return Questions(
            self.prompts + other.prompts,
            self.completions + other.completions,
            self.items + other.items,
            self.told + other.told,
        )


def make(settings: Init, lineage: Mapping[str, object] | None = None) -> int:
    """Gather the questions first, so that nothing is made where something is wrong with them. `lineage` tells where
    the round comes from; of answers that are sampled here, it is that of the model."""
    from tutelage.people import add_items, open_round, open_store

    questions = _main_questions(settings)
    questions += _known_questions(settings.golds, "gold") + _known_questions(settings.training, "training")
    presentation = _presentation(settings)
    with closing(open_store(database(settings))) as store:
        study = _study(store, settings, presentation)
        added = add_items(store, study.id, questions.prompts, questions.completions, questions.items)
        lineage = lineage or (lineage_of(settings.model) if settings.model else None)
        if lineage:
            open_round(store, study.id, settings.round, lineage)
        for line in questions.told:
            print(line)
        print(
            f"{study.name}: {added.items:,} new questions, {added.known:,} known already, in {store.address}"
        )
    shown = f"{settings.study} --db {settings.db}" if settings.db else settings.study
    print(f"Next: tutelage collect serve {shown}")
    return 0


def _study(store: "Store", settings: Init, presentation: "Presentation") -> "Study":
    from tutelage.people import Plan, create_study, list_studies, open_study

    name = new_name(settings)
    if name in list_studies(store):
        return open_study(store, name)
    return create_study(store, name, presentation=presentation, plan=Plan(overlap=settings.overlap))


def _presentation(settings: Init) -> "Presentation":
    from tutelage.people import Presentation

    guidelines = ""
    if settings.guidelines is not None:
        try:
            guidelines = settings.guidelines.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TutelageError(f"The guidelines {settings.guidelines} cannot be read: {error}.") from error
    asked = settings.question or Presentation().question
    return Presentation(asked, settings.scale, settings.criteria, guidelines)


def _main_questions(settings: Init) -> Questions:
    if settings.from_pairs:
        return _ready_pairs(settings)
    if settings.from_sample is not None:
        return _sampled_before(settings)
    if settings.prompts:
        return _sampled_now(settings)
    return Questions()


def _ready_pairs(settings: Init) -> Questions:
    from tutelage.data.formats import load_preferences
    from tutelage.people.importing import pairs_to_judge

    loaded = load_preferences(settings.from_pairs)
    found = pairs_to_judge(loaded.records[: settings.limit])
    told = [loaded.describe()]
    if found.identical:
        told.append(f"{found.identical:,} pairs of equal texts were left out")
    items = tuple(replace(item, round=settings.round) for item in found.items)
    return Questions(found.prompts, found.completions, items, tuple(told))


def _sampled_before(settings: Init) -> Questions:
    from tutelage.data.formats import load_comparisons, load_completions, load_prompts

    folder = settings.from_sample
    assert folder is not None, "the caller has looked"
    missing = [
        name for name in ("prompts", "completions", "comparisons") if not (folder / f"{name}.jsonl").is_file()
    ]
    if missing:
        raise TutelageError(
            f"{folder} has no {' and no '.join(f'{name}.jsonl' for name in missing)}: let `tutelage sample --pairs 1 "
            f"--out {folder}` write it."
        )
    prompts = load_prompts(folder / "prompts.jsonl").records[: settings.limit]
    kept = {prompt.id for prompt in prompts}
    completions = [c for c in load_completions(folder / "completions.jsonl").records if c.prompt_id in kept]
    comparisons = [c for c in load_comparisons(folder / "comparisons.jsonl").records if c.prompt_id in kept]
    told = f"{folder}: {len(comparisons):,} pairs for {len(prompts):,} prompts"
    return Questions(prompts, _asked(completions, comparisons), _items(comparisons, settings.round), (told,))


def _sampled_now(settings: Init) -> Questions:
    from tutelage.data.formats import load_prompts
    from tutelage.data.pairing import pair_completions

    loaded = load_prompts(settings.prompts)
    prompts = loaded.records[: settings.limit]
    paths = [path for path in (settings.model, settings.against) if path]
    each = settings.pairs if settings.against else 2 * settings.pairs
    sampled = [_answers(settings, path, prompts, each) for path in paths]
    answers = [[one for one in some if one.text.strip() and "\0" not in one.text] for some in sampled]
    silent = sum(map(len, sampled)) - sum(map(len, answers))
    if settings.against:
        pairs = across(answers[0], answers[1])
    else:
        pairs = pair_completions(answers[0], pairs_per_prompt=settings.pairs, rng_seed=settings.seed)
    if not pairs:
        raise TutelageError(
            f"{' and '.join(paths)} gave nothing but equal answers to these prompts, so there is nothing to compare. "
            "Another --seed or a higher --sampling.temperature may help."
        )
    told = [loaded.describe(), f"{len(pairs):,} pairs of different answers by {' and '.join(paths)}"]
    if silent:
        told.append(f"{silent:,} answers say nothing that could be shown and were left out")
    every = [completion for some in answers for completion in some]
    return Questions(prompts, _asked(every, pairs), _items(pairs, settings.round), tuple(told))


def _asked(completions: Iterable[Completion], comparisons: Iterable[Comparison]) -> tuple[Completion, ...]:
    """The answers that somebody is asked about."""
    asked = {key for comparison in comparisons for key in (comparison.a_id, comparison.b_id)}
    return tuple(completion for completion in completions if completion.id in asked)


def _answers(settings: Init, path: str, prompts: Sequence[Prompt], n: int) -> list[Completion]:
    from tutelage import config
    from tutelage.infer.answering import answer, completions
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    policy = Policy(load_backbone(config.Model(path=path)))
    answered = answer(policy, prompts, n, settings.sampling, seed=settings.seed)
    return completions(answered, path, settings.sampling)


def across(first: Sequence[Completion], second: Sequence[Completion]) -> list[Comparison]:
    """Each answer of one model beside one of the other to the same prompt, those with equal texts left out."""
    from tutelage.data.identity import stable_id

    of_second: dict[str, list[Completion]] = {}
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


def _known_questions(source: str, pool: "Pool") -> Questions:
    """Preferences as questions whose answer is known: the chosen one."""
    if not source:
        return Questions()
    from tutelage.data.formats import load_preferences
    from tutelage.data.tables import read_table
    from tutelage.people.importing import pairs_to_judge

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
