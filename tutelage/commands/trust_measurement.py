"""Measurement of a reward against the votes of a study: its agreement with people, and the scale of its scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.runs import remark
from tutelage.commands.study import study_address
from tutelage.commands.study_data import EmptyStudyError, StudySnapshot, read_study
from tutelage.data.records import VOTED, Preference, Prompt, prompt_id, stable_id, turn_text
from tutelage.people import Selection
from tutelage.rewards.composite import MeasuredReward
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.reward import Completions, Reward, made_of, reward_name
from tutelage.rewards.scores import scores_of
from tutelage.stats.intervals import Interval, share_text
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
    parts = MeasuredReward.of(reward)
    address = study_address(data)
    if address is None:
        raise TutelageError(f"--trust needs a study: {data!r} is neither a database nor a folder of one.")
    try:
        study = read_study(address, name, Selection(), rows=VOTED, held_out=0.0, seed=0, run=run)
    except EmptyStudyError as error:
        raise TutelageError(_too_few(name or data, 0)) from error
    pairs = _pairs(study)
    result = measure_trust(_judged(parts.measured, pairs, study))
    for line in (*_described(result, parts), *_leanings(reward, pairs)):
        remark(line)
    _refuse(result, str(study.record["study"]), anyway)
    return _record(result, study)


def _pairs(study: StudySnapshot) -> list[Preference]:
    """Return up to MOST pairs of the study with votes, selected by a hash of their content."""
    voted = [pair for pair, votes in study.votes.items() if votes.for_chosen + votes.for_rejected]
    if len(voted) < LEAST:
        raise TutelageError(_too_few(str(study.record["study"]), len(voted)))
    return sorted(voted, key=lambda pair: stable_id(prompt_id(pair.messages), *_texts(pair)))[:MOST]


def _texts(pair: Preference) -> tuple[str, str]:
    return turn_text(pair.chosen), turn_text(pair.rejected)


def _too_few(study: str, pairs: int) -> str:
    return (
        f"'{study}' has {counted(pairs, 'pair')} that people's votes decide (models and simulated raters do not "
        f"count); a reward is checked against {LEAST} or more. Let raters continue, or omit --trust."
    )


def _judged(reward: Reward, pairs: Sequence[Preference], study: StudySnapshot) -> list[JudgedPair]:
    prompts = [Prompt(f"pair {number}", pair.messages) for number, pair in enumerate(pairs, 1) for _ in range(2)]
    answers = [answer for pair in pairs for answer in _texts(pair)]
    scores = scores_of(reward, Completions(prompts, answers)).tolist()
    return [
        JudgedPair(
            str(pair.messages),
            chosen - rejected,
            len(turn_text(pair.chosen)) - len(turn_text(pair.rejected)),
            study.votes[pair].for_chosen,
            study.votes[pair].for_rejected,
        )
        for pair, chosen, rejected in zip(pairs, scores[::2], scores[1::2], strict=True)
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


def _described(trust: Trust, parts: MeasuredReward) -> list[str]:
    names = ", ".join(reward_name(part) for _, part in parts.measured.parts)
    share = f"{share_text(trust.agreement)} of {counted(trust.votes, 'vote')} on {counted(trust.pairs, 'pair')}"
    lines = [f"{names}: agrees with {share}; two raters agree with {share_text(trust.raters)} of each other's"]
    if trust.length.value is not None:
        lines.append(f"{names}: prefers the longer answer {_signed(trust.length)} more often than the raters do")
    if trust.weight > 0:
        lines.append(
            f"{names}: its scores are multiplied by {trust.weight:.3g}, so that a difference of 1 is a log-odds of 1 "
            "that people prefer an answer"
        )
    if parts.others is not None:
        unknown = ", ".join(reward_name(part) for _, part in parts.others.parts)
        lines.append(f"{unknown}: not measured, because it reads columns that a study does not keep")
    return lines


def _leanings(reward: Reward, pairs: Sequence[Preference]) -> list[str]:
    """Return remarks on the position bias of pairwise judges. Their replies are cached, so that nothing is requested
    again."""
    return [_leaning(part, pairs) for part in made_of(reward) if isinstance(part, PairwiseJudgeReward)]


def _leaning(judge: PairwiseJudgeReward, pairs: Sequence[Preference]) -> str:
    both = [judge.opinions(pair.messages, *_texts(pair)) for pair in pairs]
    verdicts = [(each.shown.preferred, each.turned.preferred) for each in both]
    first, turned = position_bias(verdicts, [str(pair.messages) for pair in pairs])
    return (
        f"{reward_name(judge)}: prefers the answer shown first in {share_text(first)} (50 % is fair); {turned:.0%} of "
        "its verdicts turn with the order and count as draws"
    )


def _signed(interval: Interval) -> str:
    assert interval.value is not None
    bounds = "" if interval.low is None else f" ({100 * interval.low:+.0f} to {100 * (interval.high or 0):+.0f})"
    return f"{100 * interval.value:+.0f} points{bounds}"


def _record(trust: Trust, study: StudySnapshot) -> dict[str, object]:
    measures = {name: getattr(trust, name) for name in ("agreement", "raters", "length")}
    intervals = {name: [each.value, each.low, each.high] for name, each in measures.items()}
    weight = trust.weight if trust.weight > 0 else 1.0
    return {**study.record, "pairs": trust.pairs, "votes": trust.votes, **intervals, "weight": weight}
