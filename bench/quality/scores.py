"""Rewards as functions of prompts and answers, which both sides are given."""

import json
import os
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any


def sentiment(prompts: list[str], answers: list[str]) -> list[float]:
    """The compound score of the VADER lexicon (Hutto and Gilbert 2014), from −1 to 1."""
    return [float(_lexicon().polarity_scores(answer)["compound"]) for answer in answers]


@cache
def _lexicon() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def reversed_text(prompts: list[str], answers: list[str]) -> list[float]:
    """How much of the reversed text an answer has: the ratio of the longest common blocks (difflib), from 0 to 1.

    The text stands in the last line of the prompt.
    """
    return [
        SequenceMatcher(None, answer.strip(), prompt.splitlines()[-1][::-1], autojunk=False).ratio()
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


RECORD = "TUTELAGE_QUALITY_RECORD"
"""The variable that names the file to which `recorded_sentiment` adds what it scores."""


def recorded_sentiment(completions: Sequence[Any]) -> list[float]:
    """`sentiment` of completions, which are written down with their tokens, so that another program can learn from
    them."""
    scores = sentiment([], [one.answer for one in completions])
    with Path(os.environ[RECORD]).open("a", encoding="utf-8") as file:
        for one, score in zip(completions, scores, strict=True):
            turns = [{"role": turn.role, "content": turn.content} for turn in one.messages]
            told = {"messages": turns, "prompt": one.prompt_tokens, "tokens": one.tokens, "score": score}
            file.write(json.dumps(told) + "\n")
    return scores
