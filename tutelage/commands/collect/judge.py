"""`tutelage collect judge` and `next`: a language model behind an endpoint, or a reward model, as a rater, and the
order of new questions by the predictions of models."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.base.config import EngineName
from tutelage.base.config.files import read_text
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.settings import Judge, Next
from tutelage.commands.study import open_existing, operator
from tutelage.commands.study_data import fingerprint
from tutelage.data.chat_endpoint import KEY, Endpoint
from tutelage.data.records import Messages
from tutelage.data.rubrics import rubric_of

if TYPE_CHECKING:
    from tutelage.data.llm_judge import Compare, JudgeCriterion
    from tutelage.people import Question, Store, Study
    from tutelage.people.model_judges import CriterionAgreement
    from tutelage.rewards.reward import Reward
    from tutelage.stats.vote_codes import Floats

SHOWN = 10
"""Maximum number of criteria whose agreement is printed."""
Score = Callable[[Sequence[Messages], Sequence[str]], list[float]]


def judge(settings: Judge) -> int:
    """Let the judge answer, and print the number of its answers."""
    from tutelage.commands.display import display
    from tutelage.people import list_questions, list_votes
    from tutelage.people.model_judges import criterion_agreements, judge_study
    from tutelage.people.store.raters import LONGEST_NAME

    store, study = open_existing(settings)
    with closing(store), display():
        rater, detail = (_file if settings.judge else _endpoint if settings.endpoint else _reward)(settings, study)
        name = settings.rater or (settings.model or settings.reward or str(detail["model"]))[-LONGEST_NAME:]
        if not settings.reward:
            answered = {vote.item for vote in list_votes(store, study.id) if vote.rater == name}
            left = [each for each in list_questions(store, study.id) if each.key not in answered]
            print(_bill(left, study, settings.limit))
        count = judge_study(store, study.id, name, rater, detail=detail, most=settings.limit)
        verdicts = [vote.verdict for vote in list_votes(store, study.id) if vote.rater == name]
        agreed = criterion_agreements(store, study.id, name)
    ties = verdicts.count("tie")
    print(
        f"{name}: {counted(count, 'question')} answered, {len(verdicts):,} in all, {ties:,} of them equal or "
        "inconsistent. It is counted apart from people; `tutelage reward` and `collect export` include it with --kinds."
    )
    for line in _agreed(agreed):
        print(line)
    return 0


def _bill(left: "Sequence[Question]", study: "Study", most: int | None) -> str:
    """Return what the judge is asked at most about the questions `left`, or the `most` of them that take most. A pair
    takes a request for each response or order."""
    if study.kind.traits.rubrics:
        requests = [len(rubric_of(q.prompt.data, q.key)) * len(q.texts) for q in left]
    else:
        requests = [2 for _ in left]
    most = len(requests) if most is None else min(most, len(requests))
    total = sum(sorted(requests, reverse=True)[:most])
    return (
        f"At most {counted(total, 'request')} for {counted(most, 'question')}; one whose reply has no verdict is sent "
        "once more."
    )


def _agreed(rows: "Sequence[CriterionAgreement]") -> Iterator[str]:
    """Return a line for all criteria, and one for each of those with most verdicts of people."""
    from tutelage.stats.intervals import share_text

    for row in rows[: SHOWN + 1]:
        among = "" if row.people.value is None else f"; two people agree with {share_text(row.people)} of each other's"
        name = f"'{row.criterion[:60]}'" if row.criterion else "all criteria"
        yield f"  {name}: agrees with {share_text(row.judge)} of {counted(row.verdicts, 'verdict')} of people{among}"
    if len(rows) > SHOWN + 1:
        yield f"  … and {counted(len(rows) - SHOWN - 1, 'criterion')} with fewer verdicts"


def _scale(settings: Judge) -> dict[str, object]:
    """Return how scores become answers, for the record of the rater."""
    return {"tie": settings.tie, "step": settings.step}


def _file(settings: Judge, study: "Study") -> "tuple[Compare | JudgeCriterion, Mapping[str, object]]":
    """Return the judge of a file, which asks as it says."""
    from tutelage.data.llm_judge import EndpointPairJudge, EndpointRubricJudge, placeholders
    from tutelage.people.model_judges import ScoreJudge
    from tutelage.rewards.judge import OWN_PARTS, JudgeReward, PairwiseJudgeReward, judge_named
    from tutelage.rewards.rubric import RubricReward

    path = str(settings.judge)
    judge = judge_named(path)
    criteria = study.kind.traits.rubrics
    if criteria != isinstance(judge, RubricReward):
        needed = 'by = "rubric"' if criteria else 'another `by` than "rubric"'
        raise TutelageError(f"'{study.name}' {study.kind.traits.does}: {path} needs {needed}.")
    if isinstance(judge, RubricReward):
        assert isinstance(judge.judge, EndpointRubricJudge)
        return judge.judge, judge.judge.detail
    if isinstance(judge, PairwiseJudgeReward):
        assert isinstance(judge.compare, EndpointPairJudge)
        return judge.compare, judge.compare.detail
    assert isinstance(judge, JudgeReward)
    if columns := [name for name in placeholders(judge.template) if name not in OWN_PARTS]:
        raise TutelageError(
            f"The prompt of {path} has {{{columns[0]}}}, a column of prompts, and a study keeps none: leave it out."
        )
    return ScoreJudge(_scores(judge), settings.tie, settings.step), judge.detail | _scale(settings)


def _endpoint(settings: Judge, study: "Study") -> "tuple[Compare | JudgeCriterion, Mapping[str, object]]":
    from tutelage.data.chat_endpoint import PaidEndpoint
    from tutelage.data.llm_judge import CRITERION_TEMPLATE, PAIR_TEMPLATE, EndpointPairJudge, EndpointRubricJudge

    template = CRITERION_TEMPLATE if study.kind.traits.rubrics else PAIR_TEMPLATE
    if settings.template is not None:
        template = read_text(settings.template, "prompt")
    presentation = study.presentation
    endpoint = PaidEndpoint(Endpoint(settings.endpoint, settings.model, os.environ.get(KEY, "")), settings.temperature)
    if study.kind.traits.rubrics:
        rubric_judge = EndpointRubricJudge(endpoint, presentation.guidelines, template)
        return rubric_judge, rubric_judge.detail
    pair_judge = EndpointPairJudge(endpoint, presentation.question, presentation.guidelines, template)
    return pair_judge, pair_judge.detail


def _reward(settings: Judge, study: "Study") -> "tuple[Compare, Mapping[str, object]]":
    from tutelage.people.model_judges import ScoreJudge

    if study.kind.traits.rubrics:
        raise TutelageError(
            f"'{study.name}' {study.kind.traits.does}, and --reward only scores: give --endpoint and --model."
        )
    detail: dict[str, object] = {"reward": settings.reward} | _scale(settings)
    if Path(settings.reward).is_dir():
        detail["fingerprint"] = fingerprint(Path(settings.reward))
    return ScoreJudge(scoring(settings.reward, settings.engine), settings.tie, settings.step), detail


def scoring(name: str, engine: EngineName) -> Score:
    """Return a function that scores responses in their conversations with a reward model or function."""
    from tutelage.base import config
    from tutelage.rewards.factory import make_reward

    return _scores(make_reward([name], None, config.Model(path=name, engine=engine)))


def _scores(reward: "Reward") -> Score:
    from tutelage.data.records import Prompt, prompt_id
    from tutelage.rewards.reward import Completions
    from tutelage.rewards.scores import scores_of

    def score(conversations: Sequence[Messages], responses: Sequence[str]) -> list[float]:
        prompts = [Prompt(prompt_id(messages), messages) for messages in conversations]
        return scores_of(reward, Completions(prompts, responses)).tolist()

    return score


def choose(settings: Next) -> int:
    """Set the policy of the study and, if the policy uses them, the priorities of its new questions."""
    from tutelage.people import replan, set_priorities

    store, study = open_existing(settings)
    with closing(store):
        if settings.by in ("finish_first", "random"):
            replan(store, study.id, replace(study.plan, policy=settings.by), actor=operator())
            print(f"{study.name}: questions are asked by the policy {settings.by}.")
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
    """Prioritise pairs by the `uncertainty` of reward models."""
    import numpy as np
    from scipy.special import expit

    from tutelage.people.images import refuse_images

    for q in fresh:
        refuse_images((*(message.content for message in q.messages), *q.texts), f"The item '{q.key}'", rewards[0])
    conversations = [q.messages for q in fresh]
    chances = []
    for name in rewards:
        score = scoring(name, engine)
        first, second = (score(conversations, [q.texts[side] for q in fresh]) for side in (0, 1))
        chances.append(expit(np.subtract(first, second)))
    worth = uncertainty(np.array(chances)).tolist()
    return dict(zip((q.key for q in fresh), worth, strict=True)), (f"by the uncertainty of {', '.join(rewards)}")


def uncertainty(p: "Floats") -> "Floats":
    """4 p (1 - p) of one reward model, 1 at p = 1/2 (Lewis and Gale 1994), or the standard deviation of several
    (Christiano et al. 2017) [N]. p [M, N] are their probabilities for the first side, σ of the score difference."""
    return 4 * p[0] * (1 - p[0]) if len(p) == 1 else p.std(axis=0)


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
