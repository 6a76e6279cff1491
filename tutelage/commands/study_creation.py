"""`tutelage collect init`: create a study, or add questions to one (see `study_questions`)."""

import shlex
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from tutelage.base import config
from tutelage.base.config.files import read_text
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.commands.collect.settings import Init
from tutelage.commands.study import database, new_name, operator
from tutelage.commands.study_data import lineage_of
from tutelage.commands.study_questions import Questions, known_questions, main_questions

if TYPE_CHECKING:
    from tutelage.base.config.bases import EpisodeSettings
    from tutelage.people import Presentation, Store, Study
    from tutelage.people.store.conversations import LiveModels


def make(settings: Init, lineage: Mapping[str, object] | None = None, episodes: "EpisodeSettings | None" = None) -> int:
    """Create a study or add questions to it. The questions are gathered first, so that nothing is created if they are
    invalid.

    `lineage` is the provenance of the round; for completions sampled here, it defaults to that of the model. With
    `episodes` they are episodes that the models play.
    """
    from tutelage.commands.display import display
    from tutelage.people import add_items, open_round, open_store
    from tutelage.people.live_conversation import is_address
    from tutelage.people.store.visits import work_in

    with display(), phase("questions"):
        questions = main_questions(settings, episodes)
    questions += known_questions(settings, settings.golds, "gold")
    questions += known_questions(settings, settings.training, "training")
    presentation, live = _presentation(settings), _live_models(settings)
    with closing(open_store(database(settings))) as store:
        study = _study(store, settings, presentation)
        if live is not None:
            questions += Questions(notes=(_converse(store, study, live),))
        added = add_items(
            store, study.id, questions.prompts, questions.completions, questions.items,
            images=questions.images, actor=operator(),
        )  # fmt: skip
        lineage = lineage or (lineage_of(settings.model) if settings.model and not is_address(settings.model) else None)
        if lineage:
            open_round(store, study.id, settings.round, lineage, actor=operator())
        for line in questions.notes:
            print(line)
        print(
            f"{study.name}: {counted(added.items, 'new question')}, {added.known:,} already present, in {store.address}"
        )
        work, _, _ = work_in(store, study.id)
        if work.votes:
            print(f"Its questions need {counted(work.votes, 'answer')} of raters.")
    arguments = shlex.join([settings.study, *(("--db", settings.db) if settings.db else ())])
    print(f"Next: tutelage collect serve {arguments}")
    return 0


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
            plan=Plan(overlap=(1 if settings.live else 2) if settings.overlap is None else settings.overlap),
            languages=settings.language or (ENGLISH,),
            actor=operator(),
        )
    study = open_study(store, name)
    if study.kind.name != settings.kind:
        raise TutelageError(
            f"The study {name} {study.kind.traits.does}: add questions with --kind {study.kind.name}, or create "
            "another study."
        )
    return set_languages(store, study.id, settings.language) if settings.language else study


def _live_models(settings: Init) -> "LiveModels | None":
    """Return the models for live conversations, if any."""
    from tutelage.people.store.conversations import LiveModels

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
    """Enable live conversations with the models in the study. Returns a sentence about them."""
    from tutelage.people.store.conversations import set_live_models

    live, new = set_live_models(store, study.id, live, actor=operator())
    models = " and ".join(live.names)
    since = "from the next message on" if new else "as before"
    return f"raters talk to {models}, for {counted(live.turns, 'turn')} at most, {since}"


def _openings(settings: Init) -> tuple[str, ...]:
    """Return the suggested first messages: prompts of one message."""
    if not settings.prompts:
        return ()
    from tutelage.data.formats import load_prompts

    prompts = load_prompts(settings.prompts).records[: settings.limit]
    for prompt in prompts:
        if len(prompt.messages) != 1:
            raise TutelageError(
                f"{settings.prompts}: the prompt '{prompt.id}' has {counted(len(prompt.messages), 'message')}; a "
                "suggestion for a live conversation must be a single first message."
            )
    return tuple(dict.fromkeys(prompt.messages[0].content for prompt in prompts))


def _options(sampling: config.Sampling) -> dict[str, object]:
    """Return the sampling settings as request fields of an endpoint. Disabled ones are omitted, since not every server
    supports them."""
    options: dict[str, object] = {"temperature": sampling.temperature, "max_tokens": sampling.max_new_tokens}
    more = {"top_p": (sampling.top_p, 1.0), "top_k": (sampling.top_k, 0), "min_p": (sampling.min_p, 0.0)}
    options |= {name: value for name, (value, off) in more.items() if value != off}
    return options | ({"stop": list(sampling.stop)} if sampling.stop else {})


def _presentation(settings: Init) -> "Presentation":
    from tutelage.people import Presentation
    from tutelage.people.kinds import find_kind

    guidelines = "" if settings.guidelines is None else read_text(settings.guidelines, "guidelines")
    traits = find_kind(settings.kind).traits
    question = settings.question or str(traits.question)
    scale = settings.scale if settings.scale is not None else traits.scale
    return Presentation(question, scale, settings.criteria, guidelines, settings.corrections, settings.spans)
