"""`tutelage collect judge`: a language model behind an endpoint, or a reward model, as a rater."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.base.config import EngineName
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.collect.settings import Judge
from tutelage.commands.study import open_existing
from tutelage.commands.study_lineage import fingerprint
from tutelage.data.chat_endpoint import KEY, Endpoint
from tutelage.data.records import Messages

if TYPE_CHECKING:
    from tutelage.data.llm_judge import Compare
    from tutelage.people import Study

Score = Callable[[Sequence[Messages], Sequence[str]], list[float]]


def judge(settings: Judge) -> int:
    """Let the judge answer, and print the number of its answers."""
    from tutelage.commands.display import display
    from tutelage.people import list_votes
    from tutelage.people.model_judges import judge_study
    from tutelage.people.store.raters import LONGEST_NAME

    store, study = open_existing(settings)
    name = settings.rater or (settings.model or settings.reward)[-LONGEST_NAME:]
    with closing(store), display():
        compare, detail = _endpoint(settings, study) if settings.endpoint else _reward(settings)
        count = judge_study(store, study.id, name, compare, detail=detail, most=settings.limit)
        verdicts = [vote.verdict for vote in list_votes(store, study.id) if vote.rater == name]
    ties = verdicts.count("tie")
    print(
        f"{name}: {counted(count, 'question')} answered, {len(verdicts):,} in all, {ties:,} of them equal or "
        "inconsistent. It is counted apart from people; `tutelage reward` and `collect export` include it with --kinds."
    )
    return 0


def _endpoint(settings: Judge, study: "Study") -> "tuple[Compare, Mapping[str, object]]":
    from tutelage.data.chat_endpoint import PaidEndpoint
    from tutelage.data.llm_judge import PAIR_TEMPLATE, EndpointPairJudge

    template = PAIR_TEMPLATE
    if settings.template is not None:
        try:
            template = settings.template.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TutelageError(f"The prompt {settings.template} cannot be read: {error}.") from error
    presentation = study.presentation
    endpoint = Endpoint(settings.endpoint, settings.model, os.environ.get(KEY, ""))
    pair_judge = EndpointPairJudge(
        PaidEndpoint(endpoint, settings.temperature), presentation.question, presentation.guidelines, template
    )
    return pair_judge, pair_judge.detail


def _reward(settings: Judge) -> "tuple[Compare, Mapping[str, object]]":
    from tutelage.people.model_judges import ScoreJudge

    detail: dict[str, object] = {"reward": settings.reward, "tie": settings.tie, "step": settings.step}
    if Path(settings.reward).is_dir():
        detail["fingerprint"] = fingerprint(Path(settings.reward))
    return ScoreJudge(scoring(settings.reward, settings.engine), settings.tie, settings.step), detail


def scoring(name: str, engine: EngineName) -> Score:
    """Return a function that scores responses in their conversations with a reward model or function."""
    from tutelage.base import config
    from tutelage.data.records import Prompt, prompt_id
    from tutelage.rewards.factory import make_reward
    from tutelage.rewards.reward import Completions
    from tutelage.rewards.scores import scores_of

    reward = make_reward([name], None, config.Model(path=name, engine=engine))

    def score(conversations: Sequence[Messages], responses: Sequence[str]) -> list[float]:
        prompts = [Prompt(prompt_id(messages), messages) for messages in conversations]
        scores: list[float] = scores_of(reward, Completions(prompts, responses)).tolist()
        return scores

    return score
