"""Images in data: what names them, and what their files are."""

import base64
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from offenders import for_each
from pictures import jpeg_head, png, webp_heads

from tutelage.data.images import (
    MOST_BYTES,
    BadImage,
    address_of,
    column_images,
    image_file,
    part_address,
    place_images,
    read_image,
)
from tutelage.data.records import ImagePart, Message
from tutelage.data.row_values import Unusable

URI = f"data:image/png;base64,{base64.b64encode(png()).decode()}"


@for_each([(1, 1), (640, 480), (3, 9_999)])
def test_kind_and_size_are_those_of_the_content(width: int, height: int) -> None:
    gif, picture = b"GIF89a" + struct.pack("<2H", width, height), png(width, height)
    files = {"jpeg": jpeg_head(width, height), "gif": gif, "png": picture}
    for kind, content in files.items():
        image = image_file(content)
        assert (image.kind, image.width, image.height) == (kind, width, height), kind
    for kind, content in webp_heads(width, height).items():
        image = image_file(content)
        assert (image.kind, image.width, image.height) == ("webp", width, height), kind


def test_the_name_is_the_hash_of_the_content() -> None:
    assert image_file(png()).name == image_file(png()).name != image_file(png(shade=91)).name
    assert image_file(png()).name.endswith(".png")


@for_each(
    [
        (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"%PDF-1.7", "PNG"),
        (b"", "PNG"),
        (png()[:20], "damaged"),
        (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xda\x00\x04cd", "damaged"),
        (jpeg_head(3, 3)[:30], "damaged"),
        (webp_heads(3, 3)["VP8L"][:20], "damaged"),
        (b"GIF89a" + struct.pack("<2H", 0, 7), "pixels"),
        (png()[:16] + struct.pack(">2I", 20_000, 20_000) + png()[24:], "20,000 × 20,000"),
        (png() + bytes(MOST_BYTES), "MiB"),
    ]
)
def test_what_cannot_be_shown_is_refused(content: bytes, word: str) -> None:
    with pytest.raises(BadImage, match=word):
        image_file(content)


def test_files_are_read_within_the_folder_only(tmp_path: Path) -> None:
    folder, outside = tmp_path / "data", tmp_path / "private.png"
    (folder / "in").mkdir(parents=True)
    outside.write_bytes(png())
    (folder / "in" / "a b.png").write_bytes(png(9, 9))
    (folder / "link.png").symlink_to(outside)
    within = str(folder / "in" / "a b.png")
    for address in ("in/a b.png", "in/a%20b.png", "./in/../in/a b.png", within, f"file://{within}"):
        assert read_image(address, folder).width == 9, address
    for address in ("../private.png", str(outside), f"file://{outside}", "link.png", "in/../../private.png"):
        with pytest.raises(BadImage, match="outside"):
            read_image(address, folder)
    for address in ("in", "in/none.png", "a\0b.png", "x" * 5_000):
        with pytest.raises(BadImage, match="no such file"):
            read_image(address, folder)
    with pytest.raises(BadImage, match="folder"):
        read_image("in/a b.png", None)


def test_data_uris_need_no_folder() -> None:
    assert read_image(URI, None).content == png()
    assert read_image(URI.replace("image/png", "text/html"), None).kind == "png"
    with pytest.raises(BadImage, match="base64"):
        read_image("data:image/png;base64,a", None)
    with pytest.raises(BadImage, match="SVG"):
        read_image("data:image/svg+xml,%3Csvg%3E%3C/svg%3E", None)


class Picture:
    """As much of an image of PIL as is used."""

    def getpixel(self, place: object) -> object:
        raise NotImplementedError

    def save(self, file: object, kind: str) -> None:
        assert kind == "PNG"
        file.write(png())  # type: ignore[attr-defined]


@for_each(
    [
        ({"type": "image_url", "image_url": {"url": "a.png", "detail": "low"}}, "a.png"),
        ({"type": "image_url", "image_url": "a.png"}, "a.png"),
        ({"type": "input_image", "image_url": URI}, URI),
        ({"type": "image", "image": "a.png", "text": None}, "a.png"),
        ({"type": "image", "url": "https://x.test/a.png"}, "https://x.test/a.png"),
        ({"type": "image", "path": "a.png"}, "a.png"),
        ({"type": "image", "base64": "QUJD" * 300}, "data:;base64," + "QUJD" * 300),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
            "data:;base64,QUJD",
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://x.test/a"}}, "https://x.test/a"),
        ({"type": "image", "image": {"bytes": b"ABC", "path": "a.png"}}, "data:;base64,QUJD"),
        ({"type": "image"}, ""),
        ({"type": "text", "text": "image"}, None),
    ]
)
def test_parts_name_images_in_the_forms_of_the_libraries(part: Mapping[str, object], address: str | None) -> None:
    assert part_address(part) == address


def test_images_of_pil_are_their_content() -> None:
    assert read_image(address_of(Picture()), None).content == png()
    with pytest.raises(Unusable):
        address_of(7)


def test_a_column_has_images_if_its_cells_look_like_images() -> None:
    values = {"images": [{"bytes": None, "path": "a.PNG"}, "b.jpg"], "image": "https://x.test/c.webp?size=2"}
    assert column_images(values) == ("a.PNG", "b.jpg", "https://x.test/c.webp?size=2")
    for cell in (None, "", "a landscape", [], "none", [None]):
        assert column_images({"image": cell}) == (), cell


def test_images_of_columns_take_the_places_of_empty_parts_else_come_first() -> None:
    system, turn = (
        Message("system", "Be kind."),
        Message("user", "one two", images=(ImagePart(3, ""), ImagePart(7, ""))),
    )
    placed = place_images((system, turn), ("a", "b"))
    assert [(image.place, image.address) for image in placed[1].images] == [(3, "a"), (7, "b")]
    first = place_images((system, Message("user", "What?")), ("a", "b"))
    assert [(image.place, image.address) for image in first[1].images] == [(0, "a"), (0, "b")]
    for addresses in ((), ("a",), ("a", "b", "c")):
        with pytest.raises(Unusable, match="2 image parts"):
            place_images((turn,), addresses)
