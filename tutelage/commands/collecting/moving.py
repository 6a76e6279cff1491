"""`tutelage collect export` and `import`: a study as files, and files as a study."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from tutelage.commands.collecting.place import database, new_name, open_existing, study_name
from tutelage.commands.collecting.settings import Export, Import


def write(settings: Export) -> int:
    """Export, and print what became of every vote."""
    from tutelage.people import Selection
    from tutelage.people.export import export_study

    store, study = open_existing(settings)
    selection = Selection(
        kinds=settings.kinds,
        versions=settings.versions or None,
        ties=settings.ties,
        min_votes=settings.min_votes,
        use_strength=settings.use_strength,
        weights=settings.weights,
        margins=settings.margins,
    )
    with closing(store):
        manifest: dict[str, Any] = export_study(store, study.id, settings.out, selection)
    fates = dict(manifest["judgements"])
    total = fates.pop("total")
    print(f"{settings.out}: {manifest['rows']['preferences']:,} preferences")
    print(f"{total:,} judgements = " + " + ".join(f"{n:,} {name}" for name, n in fates.items() if n))
    for note in manifest["notes"]:
        print(note)
    return 0


def read(settings: Import) -> int:
    """Import a folder as a study of its own, or the votes of a table into the named study, which is made where there is
    none."""
    from tutelage.people import open_store

    source = Path(settings.source).expanduser()
    with closing(open_store(database(settings))) as store:
        if source.is_dir():
            from tutelage.people.restoring import import_export

            named = (
                study_name(settings) or json.loads((source / "manifest.json").read_text())["study"]["name"]
            )
            study = import_export(store, source, name=named)
            print(f"{study.name} was restored from {source} into {store.address}")
            return 0
        _read_table(settings, store)
    return 0


def _read_table(settings: Import, store: Any) -> None:
    from tutelage.data.tables import read_table
    from tutelage.people import create_study, list_studies, open_study
    from tutelage.people.importing import Columns, import_votes

    table = read_table(settings.source)
    columns = Columns(
        prompt=settings.prompt,
        a=settings.a,
        b=settings.b,
        choice=settings.choice,
        rater=settings.rater,
        model_a=settings.model_a or None,
        model_b=settings.model_b or None,
        time=settings.time or None,
        reason=settings.reason or None,
    )
    name = new_name(settings)
    known = name in list_studies(store)
    study = open_study(store, name) if known else create_study(store, name)
    done = import_votes(store, study.id, table, columns)
    print(
        f"{study.name}: {done.votes:,} new votes by {done.raters:,} new raters on {done.items:,} new questions; "
        f"{done.revised:,} replaced an earlier one, {done.known:,} were known already."
    )
    for reason, (count, places) in done.dropped.items():
        print(f"  left out {count:,}: {reason} ({', '.join(places)}{', …' if count > len(places) else ''})")
