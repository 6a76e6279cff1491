"""Opening a database: made where there is none, checked, backed up and brought up to date where there is."""

import time

from tutelage.people.store import schema
from tutelage.people.store.engine import Clock, Store, connect


def open_store(url: str, *, clock: Clock = time.time) -> Store:
    store = Store(connect(url), clock)
    with store.write() as connection:
        schema.metadata.create_all(connection)
    return store
