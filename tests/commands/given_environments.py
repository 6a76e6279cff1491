"""Environments that commands are given by name in tests."""


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
