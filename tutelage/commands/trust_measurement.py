"""Measurement of a reward against the votes of a study: its agreement with people, and the scale of its scores."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.runs import remark
from tutelage.commands.study import study_address
from tutelage.commands.study_data import EmptyStudyError, PairVotes, read_study
from tutelage.data.records import VOTED, Preference, Prompt, prompt_id, stable_id, turn_text
from tutelage.people import Selection
from tutelage.rewards.composite import MeasuredReward
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.reward import Completions, Reward, made_of, reward_name
from tutelage.rewards.rubric import without_dropout
from tutelage.rewards.scores import breakdown_of
from tutelage.stats.intervals import Interval, points_text, share_text
from tutelage.stats.reward_quality import JudgedPair, Trust, measure_trust, position_bias

MOST = 500
"""Maximum number of pairs to measure a reward on: a judge is paid for each."""
LEAST = 10
"""Minimum number of pairs with votes for a measurement."""


def measure(reward: Reward, data: str, name: str, run: Path, *, anyway: bool) -> Mapping[str, object]:
    """Measure a reward against the votes of a study, and return the record for the run in the folder `run`.

    With `anyway` a reward passes even if it falls short of the raters' own agreement. Raises TutelageError if the
    reward agrees less with the study's raters than they do with each other, by more than its interval, or if the study
    is insufficient.
    """
    aligned_on = {prompt for part in made_of(reward) for prompt in getattr(part, "aligned_on", ())}
    study = voted_study(data, name, run, without=aligned_on)
    parts = MeasuredReward.of(reward, study.shared_columns)
    judged = judged_pairs(without_dropout(parts.measured), study.pairs, study)
    if len(judged) < len(study.pairs):
        missing = counted(len(study.pairs) - len(judged), "pair")
        remark(f"{missing} left out: a response has no score by {_names(parts)}")
    if len(judged) < LEAST:
        raise TutelageError(
            f"The reward {_names(parts)} scores both responses of {counted(len(judged), 'pair')} of "
            f"{len(study.pairs):,}, and it is measured on {LEAST} or more: see why verdicts are missing."
        )
    result = measure_trust(judged)
    judges = [part for part in made_of(reward) if isinstance(part, PairwiseJudgeReward)]  # their replies are cached
    for line in (*_described(result, parts), *(_leaning(judge, study.pairs) for judge in judges)):
        remark(line)
    _refuse(result, str(study.record["study"]), anyway)
    return _record(result, study)


@dataclass(frozen=True)
class JudgedStudy:
    """Pairs of a study that people voted on, their votes, the record of the study, and the own columns of its prompts
    by id of the messages."""

    pairs: tuple[Preference, ...]
    votes: Mapping[Preference, PairVotes]
    record: Mapping[str, object]
    columns: Mapping[str, Mapping[str, object]]

    @property
    def shared_columns(self) -> tuple[str, ...]:
        """Columns that the prompts of all pairs have."""
        columns = [set(self.columns.get(prompt_id(pair.messages), ())) for pair in self.pairs]
        return tuple(sorted(set.intersection(*columns))) if columns else ()


def voted_study(
    data: str, name: str, run: Path, *, most: int = MOST, least: int = LEAST, without: Collection[str] = ()
) -> JudgedStudy:
    """Read up to `most` pairs of a study that people voted on, selected by a hash of their content, except those of the
    prompts with the ids `without`.

    Raises TutelageError if there is no such study, or it has fewer than `least` of these pairs.
    """
    address = study_address(data)
    if address is None:
        raise TutelageError(f"{data!r} is no study: it is neither a database nor a folder of one.")
    try:
        study = read_study(address, name, Selection(), rows=VOTED, held_out=0.0, seed=0, run=run)
    except EmptyStudyError as error:
        raise TutelageError(_too_few(name or data, 0, least)) from error
    voted = [pair for pair, votes in study.votes.items() if votes.for_chosen + votes.for_rejected]
    used = [pair for pair in voted if prompt_id(pair.messages) not in without]
    if len(voted) > len(used):
        remark(
            f"{counted(len(voted) - len(used), 'pair')} left out: the judge was chosen by the votes on their prompts "
            "(aligned_on in its file)"
        )
    if len(used) < least:
        raise TutelageError(_too_few(str(study.record["study"]), len(used), least))
    pairs = sorted(used, key=lambda pair: stable_id(prompt_id(pair.messages), *_texts(pair)))[:most]
    return JudgedStudy(tuple(pairs), study.votes, study.record, study.columns)


def _texts(pair: Preference) -> tuple[str, str]:
    return turn_text(pair.chosen), turn_text(pair.rejected)


def _too_few(study: str, pairs: int, least: int) -> str:
    return (
        f"'{study}' has {counted(pairs, 'pair')} that people's votes decide (models and simulated raters do not "
        f"count); a reward is measured on {least} or more. Let raters continue, or do without the measurement."
    )


def judged_pairs(reward: Reward, pairs: Sequence[Preference], study: JudgedStudy) -> list[JudgedPair]:
    """Scores of a reward on pairs of a study, with the votes. Pairs with a response that has no score are omitted."""
    prompts = [
        Prompt(f"pair {number}", pair.messages, data=study.columns.get(prompt_id(pair.messages), {}))
        for number, pair in enumerate(pairs, 1)
        for _ in range(2)
    ]
    answers = [answer for pair in pairs for answer in _texts(pair)]
    scores = breakdown_of(reward, Completions(prompts, answers)).total.tolist()
    return [
        JudgedPair(
            str(pair.messages),
            chosen - rejected,
            len(turn_text(pair.chosen)) - len(turn_text(pair.rejected)),
            study.votes[pair].for_chosen,
            study.votes[pair].for_rejected,
        )
        for pair, chosen, rejected in zip(pairs, scores[::2], scores[1::2], strict=True)
        if not isnan(chosen - rejected)
    ]


def _refuse(trust: Trust, study: str, anyway: bool) -> None:
    if anyway:
        return
    if trust.raters.value is None or trust.agreement.low is None:
        raise TutelageError(
            f"No two raters of '{study}' judged the same pair, so that their agreement is unknown and no reward can be "
            "checked against it. Use --overlap 2 or more, or train anyway with --trust-anyway."
        )
    if trust.falls_short:
        raise TutelageError(
            f"The reward agrees with {share_text(trust.agreement)} of the votes of '{study}', and its raters with "
            f"{share_text(trust.raters)} of each other's: it does not share their preferences. Change it (the "
            "rubric of a judge, the rule), or train on it anyway with --trust-anyway."
        )


def _names(parts: MeasuredReward) -> str:
    return ", ".join(reward_name(part) for _, part in parts.measured.parts)


def _described(trust: Trust, parts: MeasuredReward) -> list[str]:
    names = _names(parts)
    share = f"{share_text(trust.agreement)} of {counted(trust.votes, 'vote')} on {counted(trust.pairs, 'pair')}"
    lines = [f"{names}: agrees with {share}; two raters agree with {share_text(trust.raters)} of each other's"]
    if trust.length.value is not None:
        lines.append(f"{names}: prefers the longer answer {points_text(trust.length)} more often than the raters do")
    if trust.weight > 0:
        lines.append(
            f"{names}: its scores are multiplied by {trust.weight:.3g}, so that a difference of 1 is a log-odds of 1 "
            "that people prefer an answer"
        )
    if parts.others is not None:
        unknown = ", ".join(reward_name(part) for _, part in parts.others.parts)
        lines.append(f"{unknown}: not measured, because it reads columns that a study does not keep")
    return lines


def _leaning(judge: PairwiseJudgeReward, pairs: Sequence[Preference]) -> str:
    first, turned = _position(judge, pairs)
    return (
        f"{reward_name(judge)}: prefers the answer shown first in {share_text(first)} (50 % is fair); {turned:.0%} of "
        "its verdicts turn with the order and count as draws"
    )


def position_leaning(reward: Reward, pairs: Sequence[Preference]) -> Interval | None:
    """How often a pairwise judge prefers the response shown first; None for another reward."""
    return _position(reward, pairs)[0] if isinstance(reward, PairwiseJudgeReward) else None


def _position(judge: PairwiseJudgeReward, pairs: Sequence[Preference]) -> tuple[Interval, float]:
    both = [judge.opinions(pair.messages, *_texts(pair)) for pair in pairs]
    verdicts = [(each.shown.preferred, each.turned.preferred) for each in both]
    return position_bias(verdicts, [str(pair.messages) for pair in pairs])


def _record(trust: Trust, study: JudgedStudy) -> dict[str, object]:
    measures = {name: getattr(trust, name) for name in ("agreement", "raters", "length")}
    intervals = {name: [each.value, each.low, each.high] for name, each in measures.items()}
    weight = trust.weight if trust.weight > 0 else 1.0
    measured = {"pairs": trust.pairs, "votes": trust.votes, **intervals, "weight": weight}
    return {**study.record, **measured, "columns": list(study.shared_columns)}
