"""The embedded default: a small tutoring language, its gold preference, and simulated raters."""

from tutelage.simulate.gold import explain, gold
from tutelage.simulate.raters import SimulatedRater, Vote, calibrated_tau, ceiling, pair_agreement, panel
from tutelage.simulate.topics import Topic, find_topic
from tutelage.simulate.world import World

__all__ = [
    "SimulatedRater",
    "Topic",
    "Vote",
    "World",
    "calibrated_tau",
    "ceiling",
    "explain",
    "find_topic",
    "gold",
    "pair_agreement",
    "panel",
]
