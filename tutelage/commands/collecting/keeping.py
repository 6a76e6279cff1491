"""`tutelage collect backup` and `restore`: a database as one file, and made again of it."""

from contextlib import closing

from tutelage.base.nouns import counted
from tutelage.commands.collecting.place import database, operator
from tutelage.commands.collecting.settings_serving import Backup, Restore


def back_up(settings: Backup) -> int:
    """Write the database into a file, and print what it holds."""
    from tutelage.people import list_studies, open_store
    from tutelage.people.store.archive import write_archive
    from tutelage.people.store.backup import record_archive

    with closing(open_store(database(settings), create=False)) as store:
        written = write_archive(store, settings.out.expanduser())
        record_archive(store, settings.out.expanduser(), actor=operator())
        print(
            f"{settings.out}: {', '.join(list_studies(store))} from {store.address}\n"
            f"  {counted(sum(written.rows.values()), 'row')} in {counted(len(written.rows), 'table')} of version "
            f"{written.revision}, {counted(written.rows['judgement'], 'judgement')}\nIt holds names, answers and "
            "hashes of links: keep it where nobody else can read it."
        )
    return 0


def restore(settings: Restore) -> int:
    """Make the database again, and print what it holds."""
    from tutelage.people import list_studies, open_store
    from tutelage.people.store.archive import restore_archive

    address = database(settings)
    found = restore_archive(address, settings.source.expanduser())
    with closing(open_store(address, create=False)) as store:
        print(
            f"{', '.join(list_studies(store))} restored into {store.address}: "
            f"{counted(sum(found.rows.values()), 'row')}, "
            f"{counted(found.rows['judgement'], 'judgement')}"
        )
    return 0
