"""A taskset of verifiers: questions about distances, with a tool."""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from miles_map import Map


class MilesData(vf.TaskData):
    answer: str = ""


class MilesTask(vf.Task[MilesData, vf.State]):
    @vf.reward(weight=2.0)
    async def right(self, trace: Any) -> float:
        if self.data.name == "broken":
            raise ValueError("no gold")
        return float(self.data.answer in (trace.messages[-1].content or ""))

    @vf.reward
    async def calls(self, trace: Any) -> float:
        return 0.25 * sum(message.role == "tool" for message in trace.messages)


class MilesTaskset(vf.Taskset[MilesTask]):
    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return [Map(vf.SharedToolsetConfig())]

    def load(self) -> Iterator[MilesTask]:
        for name in ("Ayr", "Ur", "broken"):
            yield MilesTask(
                MilesData(name=name, prompt=f"How far is {name}?", system_prompt="Be brief.", answer="6.5"),
                self.config.task,
            )


__all__ = ["MilesTaskset"]
