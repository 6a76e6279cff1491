"""Data sets by hub name: `owner/name`, `owner/name:split`, `owner/name/config:split`."""

import re
from collections.abc import Iterator

from tutelage.base import extras
from tutelage.base.errors import TutelageError
from tutelage.data.readers import RowPlace, TableRow

_NAME = re.compile(r"(?P<name>[\w.-]+(?:/[\w.-]+)?)(?:/(?P<config>[\w.-]+))?(?::(?P<split>[\w.\[\]%+:-]+))?")


def parse_hub_name(source: str) -> tuple[str, str | None, str]:
    """(data set, configuration, split). The split is `train` unless one is named; slices such as `train[:1%]` are the
    hub library's own."""
    match = _NAME.fullmatch(source)
    if match is None:
        raise TutelageError(
            f"There is no file {source}, and it is no hub name of the form owner/name[/config][:split]."
        )
    return match["name"], match["config"], match["split"] or "train"


def read_hub(source: str) -> Iterator[TableRow]:
    """The rows of a hub data set, downloaded or from the local cache. Raises TutelageError with the library's
    reason."""
    name, config, split = parse_hub_name(source)
    try:
        import datasets
    except ModuleNotFoundError as error:
        needed = extras.missing(error, f"There is no file {source}, and the hub data set {name}")
        raise (needed or error) from error
    try:
        rows = datasets.load_dataset(name, config, split=split)
    except (
        Exception
    ) as error:  # the library raises a dozen kinds, some of them bare, for "not there" and "no network"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise TutelageError(
            f"There is no file {source}, and the hub data set {name} (configuration {config or 'default'}, "
            f"split {split}) could not be loaded: {reason}."
        ) from error
    for number, values in enumerate(rows, 1):
        yield TableRow(RowPlace("row", number), values)
