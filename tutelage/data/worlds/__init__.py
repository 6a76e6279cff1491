"""Embedded worlds: a small tutoring language with a gold preference, children's questions for a real model with
a gold utility for clarity, and a market whose questions need tools."""

from tutelage.data.worlds.child_questions import ChildrensQuestions, clarity, explain_clarity
from tutelage.data.worlds.gold import explain, gold
from tutelage.data.worlds.tool_questions import Market, good_steps
from tutelage.data.worlds.topics import Topic, find_topic
from tutelage.data.worlds.world import World

__all__ = [
    "ChildrensQuestions",
    "Market",
    "Topic",
    "World",
    "clarity",
    "explain",
    "explain_clarity",
    "find_topic",
    "gold",
    "good_steps",
]
