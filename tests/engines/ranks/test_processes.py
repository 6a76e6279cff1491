"""The start of ranks: more of them than GPUs are refused before they communicate."""

import pytest
from cards import pretend

from tutelage.base.errors import TutelageError
from tutelage.engines.ranks.processes import join


def test_more_ranks_than_gpus_are_refused_on_every_rank(monkeypatch, tmp_path):
    pretend(monkeypatch, tmp_path, count=2)
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        join.cache_clear()
        with pytest.raises(TutelageError, match="3 processes need a GPU each, but torch finds 2"):
            join()
    join.cache_clear()
