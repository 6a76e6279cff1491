"""A reward that is to train, held against the votes of a study first: trusted as far as it agrees with people."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.runs import remark
from tutelage.commands.study_settings import study_address
from tutelage.data.records import VOTED, Preference, Prompt, stable_id
from tutelage.engines.ranks.processes import join
from tutelage.rewards.completions import Completions
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.reward import Reward, columns_read, made_of, reward_name
from tutelage.rewards.scores import scores_of
from tutelage.rewards.weighted import WeightedReward
from tutelage.stats.intervals import Interval
from tutelage.stats.reward_quality import JudgedPair, Trust, measure_trust, position_bias
from tutelage.train.run.folder import Run

if TYPE_CHECKING:
    from tutelage.commands.study_data import StudySnapshot

RECORD = "trust.json"
"""File in a run directory: how far the reward agrees with the study's votes, and the weight that follows."""
MOST = 500
"""Pairs of a study that a reward is measured on, at most: a judge is paid for each."""
LEAST = 10
"""Pairs, with votes, below which nothing can be said."""


class RewardedRun(Protocol):
    """Settings of a run that trains on a reward."""

    @property
    def trust(self) -> str: ...
    @property
    def trust_study(self) -> str: ...
    @property
    def trust_anyway(self) -> bool: ...
    @property
    def out(self) -> Path: ...


@dataclass(frozen=True)
class MeasuredReward:
    """A reward in two parts: what can be scored without the columns of a row, and what cannot."""

    measured: WeightedReward
    others: WeightedReward | None

    @classmethod
    def of(cls, reward: Reward) -> "MeasuredReward":
        """The parts of a reward. Raises TutelageError where each of them reads columns, which a study does not keep."""
        parts = reward.parts if isinstance(reward, WeightedReward) else ((1.0, reward),)
        blind = tuple((weight, part) for weight, part in parts if not columns_read(part))
        reading = tuple((weight, part) for weight, part in parts if columns_read(part))
        if not blind:
            names = ", ".join(reward_name(part) for _, part in reading)
            raise TutelageError(
                f"The reward {names} reads columns of the prompts ({', '.join(columns_read(reward))}), and a study "
                "keeps conversations and answers alone, so that it cannot be held against its votes. Leave --trust out."
            )
        return cls(WeightedReward(blind), WeightedReward(reading) if reading else None)

    def weighted(self, weight: float) -> WeightedReward:
        """The whole reward, with the weights of what was measured multiplied by `weight`."""
        parts = tuple((weight * own, part) for own, part in self.measured.parts)
        return WeightedReward((*parts, *(self.others.parts if self.others else ())))


Record: TypeAlias = Mapping[str, object]
"""What a run remembers: the study and the moment, the figures, and the weight."""


def measure_first(settings: RewardedRun, make: Callable[[], Reward]) -> Record:
    """The record of the reward that `make` returns, held against --trust before a run begins; empty without --trust.

    Collective over ranks. Raises TutelageError as `measure` does.
    """
    if not settings.trust:
        return {}
    return join().shared(
        lambda: measure(
            make(), settings.trust, settings.trust_study, settings.out, anyway=settings.trust_anyway
        )
    )


def trusted(reward: Reward, record: Record, run: Run) -> Reward:
    """The reward with the weight of `record`, which is kept in the run; the reward as it is where that is empty.

    Collective over ranks.
    """
    if not record:
        return reward
    run.ranks.shared(lambda: keep_record(record, run.path))
    return weighed(reward, record)


def measure(reward: Reward, data: str, name: str, run: Path, *, anyway: bool) -> Record:
    """The record of a reward held against the votes of a study; that of the run in the folder `run`, if it has one.

    With `anyway` a reward that falls short of the raters' own agreement passes.

    Raises TutelageError where the reward agrees less with the study's raters than they do with each other, by more than
    its interval, and where the study cannot tell.
    """
    from tutelage.commands.study_data import EmptyStudyError, read_study
    from tutelage.people import (
        Selection,
    )  # here: a run that trusts nothing spares itself the database, half a second

    if (run / RECORD).is_file():
        return read_record(run)
    parts = MeasuredReward.of(reward)
    address = study_address(data)
    if address is None:
        raise TutelageError(f"--trust names a study: {data!r} is neither its database nor its folder.")
    try:
        study = read_study(address, name, Selection(), rows=VOTED, held_out=0.0, seed=0, run=run)
    except EmptyStudyError as error:
        raise TutelageError(_too_few(name or data, 0)) from error
    pairs = _pairs(study)
    found = measure_trust(_judged(parts.measured, pairs, study))
    for line in (*_described(found, parts), *_leanings(reward, pairs)):
        remark(line)
    _refuse(found, str(study.record["study"]), anyway)
    return _record(found, study)


def keep_record(record: Record, run: Path) -> None:
    """Write the record into the folder of a run."""
    write_atomically(run / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read_record(run: Path) -> Record:
    """The record in the folder of a run."""
    found: Record = json.loads((run / RECORD).read_text(encoding="utf-8"))
    return found


def weighed(reward: Reward, record: Record) -> Reward:
    """The reward on the scale of people's preferences: a difference of 1 is a log-odds of 1 that they prefer an answer.

    One that people contradict has no such scale and stays as it is.
    """
    return MeasuredReward.of(reward).weighted(float(str(record["weight"])))


def _pairs(study: "StudySnapshot") -> list[Preference]:
    """Up to MOST pairs of the study with votes, drawn by their content."""
    voted = [pair for pair, votes in study.votes.items() if votes.for_chosen + votes.for_rejected]
    if len(voted) < LEAST:
        raise TutelageError(_too_few(str(study.record["study"]), len(voted)))
    return sorted(voted, key=lambda pair: stable_id(str(pair.messages), pair.chosen, pair.rejected))[:MOST]


def _too_few(study: str, pairs: int) -> str:
    return (
        f"'{study}' has {counted(pairs, 'pair')} that people's votes decide (models and simulated raters do not "
        f"count); a reward can be held against {LEAST} or more. Let raters go on, or leave --trust out."
    )


def _judged(reward: Reward, pairs: Sequence[Preference], study: "StudySnapshot") -> list[JudgedPair]:
    prompts = [
        Prompt(f"pair {number}", pair.messages) for number, pair in enumerate(pairs, 1) for _ in range(2)
    ]
    answers = [answer for pair in pairs for answer in (pair.chosen, pair.rejected)]
    scores = scores_of(reward, Completions(prompts, answers)).tolist()
    return [
        JudgedPair(
            str(pair.messages),
            chosen - rejected,
            len(pair.chosen) - len(pair.rejected),
            study.votes[pair].for_chosen,
            study.votes[pair].for_rejected,
        )
        for pair, chosen, rejected in zip(pairs, scores[::2], scores[1::2], strict=True)
    ]


def _refuse(found: Trust, study: str, anyway: bool) -> None:
    if anyway:
        return
    if found.raters.value is None or found.agreement.low is None:
        raise TutelageError(
            f"No two raters of '{study}' judged the same pair, so that their own agreement is not known and no reward "
            "can be held against it. Ask with --overlap 2 or more, or train all the same with --trust-anyway."
        )
    if found.falls_short:
        raise TutelageError(
            f"The reward agrees with {_share(found.agreement)} of the votes of '{study}', and its raters with "
            f"{_share(found.raters)} of each other's: it does not prefer what these people prefer. Change it (the "
            "rubric of a judge, the rule), or train on it all the same with --trust-anyway."
        )


def _described(found: Trust, parts: MeasuredReward) -> list[str]:
    names = ", ".join(reward_name(part) for _, part in parts.measured.parts)
    share = f"{_share(found.agreement)} of {counted(found.votes, 'vote')} on {counted(found.pairs, 'pair')}"
    lines = [f"{names}: agrees with {share}; two raters agree with {_share(found.raters)} of each other's"]
    if found.length.value is not None:
        lines.append(
            f"{names}: prefers the longer answer {_signed(found.length)} more often than the raters do"
        )
    if found.weight > 0:
        lines.append(
            f"{names}: its scores are multiplied by {found.weight:.3g}, so that a difference of 1 is a log-odds of 1 "
            "that people prefer an answer"
        )
    if parts.others is not None:
        unknown = ", ".join(reward_name(part) for _, part in parts.others.parts)
        lines.append(f"{unknown}: not measured, because it reads columns that a study does not keep")
    return lines


def _leanings(reward: Reward, pairs: Sequence[Preference]) -> list[str]:
    """Where judges of pairs lean by place. Their replies are known already, so that nothing is asked again."""
    return [_leaning(part, pairs) for part in made_of(reward) if isinstance(part, PairwiseJudgeReward)]


def _leaning(judge: PairwiseJudgeReward, pairs: Sequence[Preference]) -> str:
    both = [judge.opinions(pair.messages, pair.chosen, pair.rejected) for pair in pairs]
    verdicts = [(each.shown.preferred, each.turned.preferred) for each in both]
    first, turned = position_bias(verdicts, [str(pair.messages) for pair in pairs])
    return (
        f"{reward_name(judge)}: prefers the answer shown first in {_share(first)} (50 % is fair); {turned:.0%} of its "
        "verdicts turn with the order and count as draws"
    )


def _share(interval: Interval) -> str:
    if interval.value is None:
        return "an unknown share"
    bounds = "" if interval.low is None else f" ({interval.low:.0%} to {interval.high:.0%})"
    return f"{interval.value:.0%}{bounds}"


def _signed(interval: Interval) -> str:
    assert interval.value is not None
    bounds = (
        "" if interval.low is None else f" ({100 * interval.low:+.0f} to {100 * (interval.high or 0):+.0f})"
    )
    return f"{100 * interval.value:+.0f} points{bounds}"


def _record(found: Trust, study: "StudySnapshot") -> Record:
    measures = {name: getattr(found, name) for name in ("agreement", "raters", "length")}
    intervals = {name: [each.value, each.low, each.high] for name, each in measures.items()}
    weight = found.weight if found.weight > 0 else 1.0
    return {**study.record, "pairs": found.pairs, "votes": found.votes, **intervals, "weight": weight}
