"""Pauses of garbage collection."""

import gc

import pytest

from tutelage.base.garbage import without_collection


def test_a_pause_ends_as_it_began() -> None:
    assert gc.isenabled()
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collection():
        raise KeyError
    assert gc.isenabled()


def test_a_pause_leaves_collection_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
