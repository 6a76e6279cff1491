"""Ranks, shared by the tests of this folder."""

import pytest
from worlds import World


@pytest.fixture(scope="session")
def worlds():
    """`worlds(size)`: that many ranks, started once; `worlds(size, local)` as on machines of `local` ranks."""
    made = {}

    def world(size, local=None):
        key = size, local or size
        if key not in made:
            made[key] = World(*key)
        return made[key]

    yield world
    for each in made.values():
        each.close()
