"""`tutelage collect init`: make a study, or add questions to one."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tutelage import config
from tutelage.commands.collecting.lineage import lineage_of
from tutelage.commands.collecting.place import database, new_name, operator
from tutelage.commands.collecting.settings import Init
from tutelage.data.records import Comparison, CompletionRecord, Prompt
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.people import Item, Presentation, Store, Study
    from tutelage.people.store.items import Pool
    from tutelage.people.store.live_models import LiveModels


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


def make(settings: Init, lineage: Mapping[str, object] | None = None) -> int:
    """Gather the questions first, so that nothing is made where something is wrong with them. `lineage` tells where
    the round comes from; of answers that are sampled here, it is that of the model."""
    from tutelage.people import add_items, open_round, open_store

    questions = _main_questions(settings)
    questions += _known_questions(settings.golds, "gold") + _known_questions(settings.training, "training")
    presentation, live = _presentation(settings), _live_models(settings)
    with closing(open_store(database(settings))) as store:
        study = _study(store, settings, presentation)
        if live is not None:
            questions += Questions(told=(_converse(store, study, live),))
        added = add_items(
            store, study.id, questions.prompts, questions.completions, questions.items, actor=operator()
        )
        lineage = lineage or (
            lineage_of(settings.model) if settings.model and not _is_address(settings) else None
        )
        if lineage:
            open_round(store, study.id, settings.round, lineage, actor=operator())
        for line in questions.told:
            print(line)
        print(
            f"{study.name}: {added.items:,} new questions, {added.known:,} known already, in {store.address}"
        )
    shown = f"{settings.study} --db {settings.db}" if settings.db else settings.study
    print(f"Next: tutelage collect serve {shown}")
    return 0


def _is_address(settings: Init) -> bool:
    from tutelage.people.chat_models import is_address

    return is_address(settings.model)


def _study(store: "Store", settings: Init, presentation: "Presentation") -> "Study":
    from tutelage.people import Plan, create_study, list_studies, open_study, set_languages
    from tutelage.people.languages import ENGLISH

    name = new_name(settings)
    if name not in list_studies(store):
        return create_study(
            store,
            name,
            kind=settings.kind,
            presentation=presentation,
            plan=Plan(overlap=_overlap(settings)),
            languages=settings.language or (ENGLISH,),
            actor=operator(),
        )
    study = open_study(store, name)
    if study.kind.name != settings.kind:
        raise TutelageError(
            f"The study {name} {study.kind.traits.does}: add questions with --kind {study.kind.name}, or make another "
            "study."
        )
    return set_languages(store, study.id, settings.language) if settings.language else study


def _overlap(settings: Init) -> int:
    return settings.overlap if settings.overlap is not None else 1 if settings.live else 2


def _live_models(settings: Init) -> "LiveModels | None":
    """The models that raters are to talk to, if they are."""
    from tutelage.people.store.live_models import LiveModels

    if not settings.live:
        return None
    return LiveModels(
        settings.model,
        settings.against or settings.model,
        settings.turns,
        _openings(settings),
        _options(settings.sampling),
        settings.round,
    )


def _converse(store: "Store", study: "Study", live: "LiveModels") -> str:
    """Let raters of the study talk to the models; says so."""
    from tutelage.people.store.live_models import set_live_models

    live, new = set_live_models(store, study.id, live, actor=operator())
    models = " and ".join(live.names)
    since = "from the next message on" if new else "as before"
    return f"raters talk to {models}, for {live.turns} turns at most, {since}"


def _openings(settings: Init) -> tuple[str, ...]:
    """The suggested first messages: prompts of one message."""
    if not settings.prompts:
        return ()
    from tutelage.data.formats import load_prompts

    prompts = load_prompts(settings.prompts).records[: settings.limit]
    for prompt in prompts:
        if len(prompt.messages) != 1:
            raise TutelageError(
                f"{settings.prompts}: the prompt '{prompt.id}' has {len(prompt.messages)} messages; a suggestion for a "
                "live conversation is the first message, and has nothing before it."
            )
    return tuple(dict.fromkeys(prompt.messages[0].content for prompt in prompts))


def _options(sampling: config.Sampling) -> dict[str, object]:
    """The settings of sampling as requests to an endpoint have them. What is off is left out: not every server knows
    it."""
    options: dict[str, object] = {"temperature": sampling.temperature, "max_tokens": sampling.max_new_tokens}
    more = {"top_p": (sampling.top_p, 1.0), "top_k": (sampling.top_k, 0), "min_p": (sampling.min_p, 0.0)}
    options |= {name: value for name, (value, off) in more.items() if value != off}
    return options | ({"stop": list(sampling.stop)} if sampling.stop else {})


def _presentation(settings: Init) -> "Presentation":
    from tutelage.people import Presentation
    from tutelage.people.kinds import find_kind

    guidelines = ""
    if settings.guidelines is not None:
        try:
            guidelines = settings.guidelines.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TutelageError(f"The guidelines {settings.guidelines} cannot be read: {error}.") from error
    asked = settings.question or Presentation().question
    scale = settings.scale if settings.scale is not None else find_kind(settings.kind).traits.scale
    return Presentation(asked, scale, settings.criteria, guidelines, settings.corrections, settings.spans)


def _main_questions(settings: Init) -> Questions:
    if settings.from_pairs:
        return _ready_pairs(settings)
    if settings.from_sample is not None:
        return _sampled_before(settings)
    if settings.prompts and not settings.live:
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
    told = f"{folder}: {_named(items, settings)} for {len(prompts):,} prompts"
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
        told.append(f"{silent:,} answers say nothing that could be shown and were left out")
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
    from tutelage.data.identity import stable_id
    from tutelage.data.pairing import group_completions
    from tutelage.people import Item

    assert settings.answers is not None, "the caller has looked"
    groups = group_completions(
        completions, size=settings.answers, groups_per_prompt=settings.pairs, rng_seed=settings.seed
    )
    if not groups:
        raise TutelageError(
            f"{source} gave no prompt {settings.answers} different answers {_task(settings)}. Sample more of them, or "
            "give a lower --answers."
        )
    return tuple(Item(stable_id(key, *ids), key, ids, round=settings.round) for key, ids in groups)


def _named(items: "Sequence[Item]", settings: Init) -> str:
    """How many questions of which kind."""
    if settings.answers is None:
        return f"{len(items):,} pairs of different answers"
    return f"{len(items):,} sets of {settings.answers} answers {_task(settings)}"


def _task(settings: Init) -> str:
    from tutelage.people.kinds import find_kind

    return find_kind(settings.kind).traits.task


def _asked(completions: Iterable[CompletionRecord], items: "Iterable[Item]") -> tuple[CompletionRecord, ...]:
    """The answers that somebody is asked about."""
    asked = {key for item in items for key in item.responses}
    return tuple(completion for completion in completions if completion.id in asked)


def _answers(settings: Init, path: str, prompts: Sequence[Prompt], n: int) -> list[CompletionRecord]:
    from tutelage.infer.answering import answer, completions
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    policy = Policy(load_backbone(config.Model(path=path, engine=settings.engine)))
    answered = answer(policy, prompts, n, settings.sampling, seed=settings.seed)
    return completions(answered, path, settings.sampling)


def across(first: Sequence[CompletionRecord], second: Sequence[CompletionRecord]) -> list[Comparison]:
    """Each answer of one model beside one of the other to the same prompt, those with equal texts left out."""
    from tutelage.data.identity import stable_id

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
