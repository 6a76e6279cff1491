"""`tutelage collect next`: the order of new questions."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING

from tutelage.base.config import EngineName
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.settings import Next
from tutelage.commands.study import open_existing, operator

if TYPE_CHECKING:
    from tutelage.people import Question, Store, Study
    from tutelage.people.settings import Policy


def choose(settings: Next) -> int:
    """Set the policy of the study and, if the policy uses them, the priorities of its new questions."""
    from tutelage.people import replan, set_priorities

    store, study = open_existing(settings)
    with closing(store):
        if settings.by in ("finish-first", "random"):
            policy: Policy = "finish_first" if settings.by == "finish-first" else "random"
            replan(store, study.id, replace(study.plan, policy=policy), actor=operator())
            print(f"{study.name}: questions are asked {settings.by}.")
            return 0
        fresh = fresh_questions(store, study)
        priorities, why = (
            _by_uncertainty(fresh, settings.reward, settings.engine)
            if settings.by == "uncertainty"
            else _by_models(store, study, fresh, settings)
        )
        set_priorities(store, study.id, priorities, why=why, actor=operator())
        replan(store, study.id, replace(study.plan, policy="priority"), actor=operator())
    print(f"{study.name}: {counted(len(priorities), 'new question', 'is')} asked {why}, 30 % of them at random.")
    return 0


def fresh_questions(store: "Store", study: "Study") -> "list[Question]":
    """Return the production pairs of the study that were not yet assigned. Raises TutelageError if there are none."""
    from tutelage.people import list_questions

    if not study.kind.traits.sides:
        raise TutelageError(f"'{study.name}' {study.kind.traits.does}; priorities are for studies of pairs.")
    fresh = [
        q
        for q in list_questions(store, study.id)
        if q.item.pool == "production" and not (q.answered or q.leased or q.skipped or q.excluded)
    ]
    if not fresh:
        raise TutelageError(f"'{study.name}' has no new question left; add some with `tutelage collect init`.")
    return fresh


def _by_uncertainty(
    fresh: "Sequence[Question]", rewards: Sequence[str], engine: EngineName
) -> tuple[dict[str, float], str]:
    """Prioritise pairs with close scores (one model), or with disagreement (several; `stats.acquisition`)."""
    import numpy as np

    from tutelage.commands.collect.judge import scoring
    from tutelage.stats.acquisition import closeness, disagreement

    conversations = [q.messages for q in fresh]
    chances = []
    for name in rewards:
        score = scoring(name, engine)
        first, second = (score(conversations, [q.texts[side] for q in fresh]) for side in (0, 1))
        chances.append([_sigmoid(a - b) for a, b in zip(first, second, strict=True)])
    worth = (closeness if len(chances) == 1 else disagreement)(np.array(chances)).tolist()
    return dict(zip((q.key for q in fresh), worth, strict=True)), (f"by the uncertainty of {', '.join(rewards)}")


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x)) if x >= 0 else 1 - 1 / (1 + exp(x))


def _by_models(
    store: "Store", study: "Study", fresh: "Sequence[Question]", settings: Next
) -> tuple[dict[str, float], str]:
    from tutelage.people import survey

    rounds = survey(store, study.id).rounds
    new = settings.new or (rounds[-1].policy if rounds else "")
    if not new:
        raise TutelageError(f"'{study.name}' does not say which model is new; name it with --new.")
    between = {}
    for question in fresh:
        models = {completion.sampler for completion in question.completions}
        rivals = models - {new}
        matches = len(models) == 2 and len(rivals) == 1 and (not settings.old or rivals == {settings.old})
        between[question.key] = float(matches)
    if not any(between.values()):
        names = sorted({c.sampler for q in fresh for c in q.completions})
        raise TutelageError(
            f"No new question is between {new} and {settings.old or 'another model'}; the models of the new questions "
            f"are {', '.join(names)}."
        )
    return between, f"first between {new} and {settings.old or 'older models'}"
