"""The search for an item: what its statements are in each database."""

from sqlalchemy.dialects import postgresql, sqlite

from tutelage.people.store import schema, search


def test_the_queue_repeats_the_condition_of_its_index_word_for_word_where_there_is_no_likely() -> None:
    """What SQLite makes of `likely` is seen by its plans in tests/people/test_load.py."""
    condition = str(schema.STARTED.compile(dialect=postgresql.dialect()))
    assert condition == "item.started = 1 AND item.room > 0"
    assert condition in str(search._NEXT_STARTED.compile(dialect=postgresql.dialect()))
    assert "likely(item.room > 0) AND" in str(search._NEXT_STARTED.compile(dialect=sqlite.dialect()))
