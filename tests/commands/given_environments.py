"""Environments that commands are given by name in tests."""

from typing import Any


class Greeting:
    """What it says first is the same in each episode."""

    def reset(self, **row: object) -> str:
        return " Hello!"


class Varying:
    """What it says first differs from episode to episode."""

    episodes = 0

    def reset(self, **row: object) -> str:
        Varying.episodes += 1
        return f" Hello, number {Varying.episodes}!"


async def talk(row: Any, episode: Any) -> float:
    """Two turns, the first of them after a message of its own."""
    await episode.chat({"role": "user", "content": "Well?"})
    await episode.chat({"role": "user", "content": "And?"})
    return 0.0
