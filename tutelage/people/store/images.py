"""Images of a study, which its texts name."""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence

import sqlalchemy as sa

from tutelage.data.images import ImageFile
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, chunks

_images = schema.image


def add_images(connection: Connection, study_id: int, files: Iterable[ImageFile]) -> int:
    """Insert the images that the study does not have yet; returns their number."""
    by_name = {file.name: file for file in files}
    stored: set[str] = set()
    for some in chunks(list(by_name)):
        query = sa.select(_images.c.name).where(_images.c.study_id == study_id, _images.c.name.in_(some))
        stored.update(connection.scalars(query))
    for name in by_name.keys() - stored:
        file = by_name[name]
        content = base64.b64encode(file.content).decode()
        row = {"study_id": study_id, "name": name, "content": content, "width": file.width, "height": file.height}
        connection.execute(_images.insert(), row)
    return len(by_name.keys() - stored)


def image_content(store: Store, study_id: int, name: str) -> bytes | None:
    """The content of an image; None if the study has no image of the name."""
    query = sa.select(_images.c.content).where(_images.c.study_id == study_id, _images.c.name == name)
    with store.read() as connection:
        content = connection.scalar(query)
    return None if content is None else base64.b64decode(content)


def image_sizes(store: Store, study_id: int, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Width and height in pixels of those of the images that the study has, by name."""
    if not names:
        return {}
    query = sa.select(_images.c.name, _images.c.width, _images.c.height).where(_images.c.study_id == study_id)
    with store.read() as connection:
        return {
            row.name: (row.width, row.height)
            for some in chunks(list(dict.fromkeys(names)))
            for row in connection.execute(query.where(_images.c.name.in_(some)))
        }


def list_images(store: Store, study_id: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of each image of the study, in the order of insertion."""
    with store.read() as connection:
        names = connection.scalars(
            sa.select(_images.c.name).where(_images.c.study_id == study_id).order_by(_images.c.id)
        ).all()
    for name in names:
        content = image_content(store, study_id, name)
        assert content is not None, "images are never deleted"
        yield name, content
