"""The embedded worlds and their simulated raters: a small tutoring language with its gold preference, and children's
questions for a real model with what makes an answer clear."""

from tutelage.simulate.clarity import clarity, explain_clarity
from tutelage.simulate.gold import explain, gold
from tutelage.simulate.questions import ChildrensQuestions
from tutelage.simulate.raters import SimulatedRater, Vote, calibrated_tau, ceiling, pair_agreement, panel
from tutelage.simulate.topics import Topic, find_topic
from tutelage.simulate.world import World

__all__ = [
    "ChildrensQuestions",
    "SimulatedRater",
    "Topic",
    "Vote",
    "World",
    "calibrated_tau",
    "ceiling",
    "clarity",
    "explain",
    "explain_clarity",
    "find_topic",
    "gold",
    "pair_agreement",
    "panel",
]
