"""A server of tools for `miles_v1`, which verifiers runs as a process."""

import verifiers.v1 as vf


class Map(vf.Toolset[vf.SharedToolsetConfig, vf.State]):
    TOOL_PREFIX = "map"

    @vf.tool
    async def far(self, place: str) -> str:
        """Miles to a place."""
        return {"Ayr": "6.5"}[place]


if __name__ == "__main__":
    Map.run()
