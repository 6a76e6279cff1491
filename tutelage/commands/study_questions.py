"""Questions of a study for `tutelage collect init`: from pairs or traces, from the output of `tutelage sample`, by
sampling, or with known answers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.settings import Init
from tutelage.data.records import AssistantTurn, Comparison, CompletionRecord, Prompt, turn_text

if TYPE_CHECKING:
    from tutelage.base.config.bases import EpisodeSettings
    from tutelage.data.images import ImageFile
    from tutelage.people import Item
    from tutelage.people.images import Gallery
    from tutelage.people.store.items import Pool
    from tutelage.rollout.environment import Environment


@dataclass(frozen=True)
class Questions:
    """Questions for a study, with a sentence about each source."""

    prompts: tuple[Prompt, ...] = ()
    completions: tuple[CompletionRecord, ...] = ()
    items: "tuple[Item, ...]" = ()
    notes: tuple[str, ...] = ()
    images: "tuple[ImageFile, ...]" = ()

    def __add__(self, other: "Questions") -> "Questions":
        return Questions(
            self.prompts + other.prompts,
            self.completions + other.completions,
            self.items + other.items,
            self.notes + other.notes,
            self.images + other.images,
        )


def main_questions(settings: Init, episodes: "EpisodeSettings | None" = None) -> Questions:
    """Return the questions of the settings, about `episodes` if their models play some."""
    if settings.from_pairs or settings.from_traces:
        return _ready(settings)
    if settings.from_sample is not None:
        return _sampled_before(settings)
    if settings.prompts and not settings.live:
        return _sampled_now(settings, episodes)
    return Questions()


def _ready(settings: Init) -> Questions:
    from tutelage.data.formats import load_preferences, load_trace_pairs, load_traces
    from tutelage.people.vote_import import pairs_to_judge, steps_to_judge

    gallery = _gallery(settings, settings.from_traces or settings.from_pairs)
    if settings.from_traces:
        traces = load_traces(settings.from_traces)
        described, judged = traces.describe(), steps_to_judge(traces.records, most=settings.limit)
    elif (acted := load_trace_pairs(settings.from_pairs)) is not None:
        described, judged = acted.describe(), pairs_to_judge(acted.records, most=settings.limit)
    else:
        pairs = load_preferences(settings.from_pairs, images=True)
        described, judged = pairs.describe(), pairs_to_judge(gallery.records(pairs), most=settings.limit)
    notes = [described, *gallery.notes]
    if len(judged.items) == settings.limit:
        what = "different response" if settings.from_traces else "different pair"
        notes.append(f"used: {counted(settings.limit, what)} (--limit)")
    if judged.identical:
        notes.append(f"omitted: {counted(judged.identical, 'pair')} of equal texts")
    items = tuple(replace(item, round=settings.round) for item in judged.items)
    return Questions(judged.prompts, judged.completions, items, tuple(notes), tuple(gallery.files.values()))


def _gallery(settings: Init, source: "str | Path") -> "Gallery":
    """The images of a source, in its folder if no other is set; those of a hub data set are within the rows."""
    from tutelage.people.images import Gallery

    path = Path(source).expanduser()
    folder = settings.images or (path if path.is_dir() else path.parent if path.is_file() else None)
    return Gallery(str(source), folder)


def _sampled_before(settings: Init) -> Questions:
    from tutelage.data.formats import load_comparisons, load_completions, load_prompts

    folder = settings.from_sample
    assert folder is not None, "the caller has checked"
    needed = ("prompts", "completions") if settings.answers else ("prompts", "completions", "comparisons")
    missing = [name for name in needed if not (folder / f"{name}.jsonl").is_file()]
    if missing:
        raise TutelageError(
            f"{folder} has no {' and no '.join(f'{name}.jsonl' for name in missing)}: let `tutelage sample --pairs 1 "
            f"--out {folder}` write it."
        )
    loaded = load_completions(folder / "completions.jsonl")
    completions = loaded.records
    if settings.answers is not None:
        items = _sets(settings, completions, str(folder))
    else:
        items = _items(load_comparisons(folder / "comparisons.jsonl").records, settings.round)
    items = _one_for_each_prompt(items)[: settings.limit]
    prompt_ids, gallery = {item.prompt for item in items}, _gallery(settings, folder)
    prompts = tuple(
        gallery.records(load_prompts(folder / "prompts.jsonl", images=True).only(lambda p: p.id in prompt_ids))
    )
    ids = {key for item in items for key in item.responses}
    completions = tuple(gallery.records(loaded.only(lambda completion: completion.id in ids)))
    note = f"{folder}: {_named(items, settings)} for {counted(len(prompts), 'prompt')}"
    return Questions(prompts, completions, items, (note, *gallery.notes), tuple(gallery.files.values()))


def _sampled_now(settings: Init, episodes: "EpisodeSettings | None") -> Questions:
    from tutelage.commands.generators import environment_of, episode_prompts

    environment = None if episodes is None else environment_of(episodes)
    loaded = episode_prompts(settings.prompts, environment)
    prompts = loaded.records[: settings.limit]
    paths = [path for path in (settings.model, settings.against) if path]
    each = -(-(settings.answers or 2) * settings.pairs // len(paths))
    if environment is None:
        sampled = [_answers(settings, path, prompts, each) for path in paths]
    else:
        prompts, sampled = _episodes(settings, paths, environment.offer(prompts), each, environment)
    answers = [[one for one in some if one.text.strip() and "\0" not in one.text] for some in sampled]
    silent = sum(map(len, sampled)) - sum(map(len, answers))
    every = [completion for some in answers for completion in some]
    if settings.answers is not None:
        items = _sets(settings, every, " and ".join(paths))
    else:
        items = _items(_pairs(settings, answers), settings.round)
    notes = [loaded.describe(), f"{_named(items, settings)} by {' and '.join(paths)}"]
    if silent:
        notes.append(f"omitted: {counted(silent, 'response')} without a text to show")
    compared = {key for item in items for key in item.responses}
    return Questions(prompts, tuple(one for one in every if one.id in compared), items, tuple(notes))


def _pairs(settings: Init, answers: Sequence[Sequence[CompletionRecord]]) -> Sequence[Comparison]:
    """Return pairs of one model's responses, or of one response of each of two models."""
    from tutelage.data.pairing import pair_completions

    if settings.against:
        pairs = across(answers[0], answers[1])
    else:
        pairs = pair_completions(answers[0], pairs_per_prompt=settings.pairs, rng_seed=settings.seed)
    if not pairs:
        paths = " and ".join(path for path in (settings.model, settings.against) if path)
        raise TutelageError(
            f"{paths} gave only equal responses to these prompts, so there is nothing to compare. "
            "Another --seed or a higher --sampling.temperature may help."
        )
    return pairs


def _sets(settings: Init, completions: Sequence[CompletionRecord], source: str) -> "tuple[Item, ...]":
    """Return questions with sets of different responses to one prompt."""
    from tutelage.data.pairing import group_completions
    from tutelage.data.records import stable_id
    from tutelage.people import Item

    assert settings.answers is not None, "the caller has checked"
    groups = group_completions(
        completions, size=settings.answers, groups_per_prompt=settings.pairs, rng_seed=settings.seed
    )
    if not groups:
        raise TutelageError(
            f"{source} has no prompt with {counted(settings.answers, 'different response')} {_task(settings)}. Sample "
            "more of them, or give a lower --answers."
        )
    return tuple(Item(stable_id(key, *ids), key, ids, round=settings.round) for key, ids in groups)


def _named(items: "Sequence[Item]", settings: Init) -> str:
    """Describe the number and the kind of the questions."""
    if settings.answers is None:
        return f"{counted(len(items), 'pair')} of different responses"
    return f"{counted(len(items), 'set')} of {counted(settings.answers, 'response')} {_task(settings)}"


def _task(settings: Init) -> str:
    from tutelage.people.kinds import find_kind

    return find_kind(settings.kind).traits.task


def _answers(settings: Init, path: str, prompts: Sequence[Prompt], n: int) -> list[CompletionRecord]:
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.rollout.inference.completion_records import records_of, sample_completions

    policy = Policy(load_backbone(config.Model(path=path, engine=settings.engine)))
    batch = sample_completions(policy, prompts, n, settings.sampling, seed=settings.seed)
    return records_of(batch, path, settings.sampling)


def _episodes(
    settings: Init, paths: Sequence[str], prompts: Sequence[Prompt], n: int, environment: "Environment"
) -> tuple[tuple[Prompt, ...], list[list[CompletionRecord]]]:
    """Return the prompts and the episodes of each model."""
    from tutelage.commands.generators import playing
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.rollout.inference.completion_records import episode_records, sample_completions
    from tutelage.rollout.local import LocalGenerator

    played = {}
    for path in paths:
        policy = Policy(load_backbone(config.Model(path=path, engine=settings.engine)))
        generator = playing(environment, policy, prompts, LocalGenerator(policy))
        played[path] = sample_completions(
            policy, prompts, n, settings.sampling, seed=settings.seed, generator=generator
        )
    used, records = episode_records(played, settings.sampling)
    return used, [records[path] for path in paths]


def across(first: Sequence[CompletionRecord], second: Sequence[CompletionRecord]) -> list[Comparison]:
    """Pair each completion of one model with one of the other for the same prompt, without equal texts."""
    from tutelage.data.records import stable_id

    of_second: dict[str, list[CompletionRecord]] = {}
    for completion in second:
        of_second.setdefault(completion.prompt_id, []).append(completion)
    pairs = []
    for one in first:
        rivals = of_second.get(one.prompt_id, [])
        other = rivals.pop(0) if rivals else None
        if other is not None and other.text.strip() != one.text.strip():
            # the order must not reveal the model
            a, b = sorted((one.id, other.id))
            pairs.append(Comparison(stable_id(one.prompt_id, a, b), one.prompt_id, a, b, "against"))
    return pairs


def _items(comparisons: Iterable[Comparison], number: int) -> "tuple[Item, ...]":
    from tutelage.people import Item

    return tuple(Item.of(comparison, number) for comparison in comparisons)


def _one_for_each_prompt(items: "Iterable[Item]") -> "tuple[Item, ...]":
    """Return the items in another order: the first of every prompt, then the second of every prompt, and so on."""
    earlier: Counter[str] = Counter()
    order = []
    for item in items:
        order.append((earlier[item.prompt], item))
        earlier[item.prompt] += 1
    return tuple(item for _, item in sorted(order, key=lambda pair: pair[0]))


def known_questions(settings: Init, source: str, pool: "Pool") -> Questions:
    """Convert preferences to questions with a known answer, the chosen one; for a kind about steps, rated steps."""
    if not source:
        return Questions()
    from tutelage.people.kinds import find_kind

    return (_known_steps if find_kind(settings.kind).traits.steps else _known_pairs)(settings, source, pool)


def _known_steps(settings: Init, source: str, pool: "Pool") -> Questions:
    from tutelage.data.formats import load_traces
    from tutelage.data.tables import read_table
    from tutelage.people.vote_import import steps_to_judge

    table = read_table(source)
    explained = {str(row.where): str(row.values.get("explanation") or "") for row in table.rows}
    loaded = load_traces(table.without("explanation"))
    explanations = [explained.get(str(place), "") for place in loaded.places]
    judged = steps_to_judge(loaded.records, pool=pool, explanations=explanations)
    return Questions(judged.prompts, judged.completions, judged.items, (f"{loaded.describe()} ({pool})",))


def _known_pairs(settings: Init, source: str, pool: "Pool") -> Questions:
    from tutelage.data.formats import load_preferences
    from tutelage.data.tables import read_table
    from tutelage.people.store.item_catalogue import turn_of
    from tutelage.people.table_items import prompt_of
    from tutelage.people.vote_import import pairs_to_judge

    table = read_table(source)
    loaded, gallery = load_preferences(table.without("explanation"), images=True), _gallery(settings, source)
    preferences = tuple(gallery.records(loaded))
    explanations = {row.where: str(row.values.get("explanation") or "") for row in table.rows}
    explained: dict[tuple[str, AssistantTurn], str] = {}
    for preference, where in zip(preferences, loaded.places, strict=True):
        chosen = prompt_of(preference.messages).id, preference.chosen
        explained[chosen] = explanations.get(where) or explained.get(chosen, "")
    judged = pairs_to_judge(preferences, origin=pool)
    turns = {completion.id: turn_of(completion) for completion in judged.completions}
    items = []
    for item in judged.items:
        right = [name for name, key in zip("ab", item.responses, strict=True) if (item.prompt, turns[key]) in explained]
        if len(right) != 1:
            text = turn_text(turns[item.responses[0]])
            raise TutelageError(f"{source} chooses both sides of a pair: '{text[:60]}'.")
        reason = explained[item.prompt, turns[item.responses["ab".index(right[0])]]]
        items.append(replace(item, key=f"{pool}-{item.key}", pool=pool, gold=right[0], explanation=reason))
    notes = (f"{loaded.describe()} ({pool})", *gallery.notes)
    return Questions(judged.prompts, judged.completions, tuple(items), notes, tuple(gallery.files.values()))
