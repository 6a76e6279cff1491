"""Images in data: the parts of messages and the columns that name them, and their files.

A part is {"type": "image_url", "image_url": {"url": …}} (OpenAI), {"type": "input_image", "image_url": …} (OpenAI's
responses), {"type": "image", "image" | "url" | "path" | "base64": …} (transformers, TRL) or {"type": "image", "source":
{…}} (Anthropic). {"type": "image"} alone stands for the next image of the column `images` or `image`; without such
parts, the images of the column come before the text of the first user turn, as TRL has it.

The kind of a file is that of its first bytes. SVG is refused, because it is a program rather than a picture.
"""

import base64
import binascii
import hashlib
import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tutelage.base.nouns import counted
from tutelage.data.readers import Values
from tutelage.data.records import ImagePart, Message, Messages
from tutelage.data.row_values import Unusable

MOST_BYTES = 10 << 20
MOST_PIXELS = 40_000_000
"""Limits of one image. A browser takes four bytes for each pixel, however small the file is."""
COLUMNS = ("images", "image")
_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".svg", ".bmp", ".tif", ".tiff", ".avif", ".heic")
_KEYS = ("image_url", "image", "url", "path", "base64", "source", "bytes", "data")
"""Keys of an object that hold an image's address or content, in the order of preference."""


class BadImage(Exception):
    """Raised if an image cannot be shown; the text is the reason."""


@dataclass(frozen=True)
class ImageFile:
    """An image: its kind ("png", "jpeg", "webp" or "gif"), its size in pixels, and the content of its file."""

    kind: str
    width: int
    height: int
    content: bytes

    @property
    def name(self) -> str:
        """The name of its file: the SHA-256 of the content, and the kind."""
        return f"{hashlib.sha256(self.content).hexdigest()}.{self.kind}"


# Addresses -----------------------------------------------------------------------------------------------------------


def part_address(part: Mapping[str, object]) -> str | None:
    """The address of an image part, empty if the column `images` has it; None for a part of another type."""
    if part.get("type") not in ("image", "image_url", "input_image"):
        return None
    values = [part[key] for key in _KEYS if part.get(key)]
    return address_of(values[0]) if values else ""


def address_of(value: Any) -> str:
    """The address of an image in a cell or a part: a text, an object with a path or the content, the content itself, or
    an image of the library PIL.

    Raises:
        Unusable: the value is none of these.
    """
    if isinstance(value, str) and value:
        return value if ":" in value[:12] or len(value) < 1_000 else f"data:;base64,{value}"  # else bare base64
    if isinstance(value, bytes | bytearray):
        return f"data:;base64,{base64.b64encode(value).decode()}"
    if isinstance(value, Mapping):
        found = next((value[key] for key in ("bytes", *_KEYS) if value.get(key)), None)
        if found is not None:
            is_base64 = isinstance(found, str) and value.get("type") == "base64"
            return f"data:;base64,{found}" if is_base64 else address_of(found)
    elif callable(getattr(value, "save", None)) and hasattr(value, "getpixel"):
        file = io.BytesIO()
        value.save(file, "PNG")
        return address_of(file.getvalue())
    raise Unusable("an image without a path, a URL or content")


def column_images(values: Values) -> tuple[str, ...]:
    """The addresses in the columns `images` and `image`. A text counts as an address if it ends like the name of an
    image, or is a data URI."""
    cells = [cell for name in COLUMNS for cell in _listed(values.get(name)) if cell is not None and cell != ""]
    return tuple(address_of(cell) for cell in cells if not isinstance(cell, str) or _is_address(cell))


def _listed(cell: object) -> Iterator[object]:
    yield from cell if isinstance(cell, list | tuple) else [cell]


def _is_address(text: str) -> bool:
    return text.startswith("data:image/") or urlsplit(text[:2_000]).path.lower().endswith(_ENDINGS)


def place_images(messages: Messages, addresses: tuple[str, ...]) -> Messages:
    """The messages with the images of the columns in them.

    Raises:
        Unusable: the parts without an address are not as many as the images, or there is no user turn.
    """
    empty = sum(not image.address for message in messages for image in message.images)
    if not addresses and not empty:
        return messages
    if empty and empty != len(addresses):
        raise Unusable(f"{counted(empty, 'image part')} for {counted(len(addresses), 'image')} in the column images")
    if not empty:
        first = next((place for place, message in enumerate(messages) if message.role == "user"), None)
        if first is None:
            raise Unusable("images without a user turn to show them in")
        parts = (*(ImagePart(0, address) for address in addresses), *messages[first].images)
        return (*messages[:first], replace(messages[first], images=parts), *messages[first + 1 :])
    rest = iter(addresses)
    return tuple(
        replace(message, images=tuple(p if p.address else replace(p, address=next(rest)) for p in message.images))
        for message in messages
    )


def has_images(record: object) -> bool:
    turns = [*getattr(record, "messages", ()), *(getattr(record, name, None) for name in _TURNS)]
    return any(isinstance(turn, Message) and turn.images for turn in turns)


_TURNS = ("response", "completion", "chosen", "rejected")

# Files ---------------------------------------------------------------------------------------------------------------


def is_remote(address: str) -> bool:
    """Whether the address is of another machine."""
    return address.startswith("//") or urlsplit(address[:2_000]).scheme not in ("", "data", "file")


def read_image(address: str, folder: Path | None) -> ImageFile:
    """The image at a path within the folder, or in a data URI.

    Raises:
        BadImage: there is no such file in the folder, or it is no image that can be shown.
    """
    if address.startswith("data:"):
        head, _, text = address.partition(",")
        try:
            return image_file(base64.b64decode(unquote(text)) if head.endswith(";base64") else unquote(text).encode())
        except binascii.Error:
            raise BadImage("its base64 is damaged") from None
    if folder is None:
        raise BadImage("its file has no folder: only images within the rows are read")
    path = _path(address, folder)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadImage(_too_large(path.stat().st_size))
        return image_file(path.read_bytes())
    except OSError as error:
        raise BadImage(f"the file cannot be read: {error.strerror}") from None


def _path(address: str, folder: Path) -> Path:
    """The file within the folder, whatever links lead to it."""
    try:
        folder = folder.resolve()
        named = unquote(urlsplit(address).path) if address.startswith("file:") else address
        places = [(folder / each).resolve() for each in dict.fromkeys((named, unquote(named)))]
        inside = [place for place in places if place.is_relative_to(folder)]
        path = next((place for place in inside if place.is_file()), None)
    except (OSError, ValueError):  # a name that no file can have
        raise BadImage("there is no such file") from None
    if path is None:
        raise BadImage(f"there is no such file in {folder}" if inside else f"it is outside the folder {folder}")
    return path


def _too_large(size: int) -> str:
    return f"it has {size / 2**20:,.1f} MiB, more than the {MOST_BYTES >> 20} MiB of an image"


def image_file(content: bytes) -> ImageFile:
    """The image with this content.

    Raises:
        BadImage: it is none of the kinds, damaged at its beginning, or too large.
    """
    if len(content) > MOST_BYTES:
        raise BadImage(_too_large(len(content)))
    try:
        kind, (width, height) = _measured(content)
    except (struct.error, IndexError):
        raise BadImage("it is damaged: its size in pixels is missing") from None
    if not width * height:
        raise BadImage("it has no pixels")
    if width * height > MOST_PIXELS:
        raise BadImage(f"it has {width:,} × {height:,} pixels, more than {MOST_PIXELS:,} in all")
    return ImageFile(kind, width, height, content)


def _measured(content: bytes) -> tuple[str, tuple[int, int]]:
    """Kind, and (width, height)."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png", struct.unpack(">2I", content[16:24])
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "gif", struct.unpack("<2H", content[6:10])
    if content.startswith(b"\xff\xd8\xff"):
        return "jpeg", _jpeg_size(content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp", _webp_size(content)
    if b"<svg" in content[:4096].lower():
        raise BadImage("it is an SVG, which may hold scripts: save it as PNG")
    raise BadImage("it is no PNG, JPEG, WebP or GIF")


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Size in the frame header, SOF0 to SOF15 without DHT, JPG and DAC (ITU-T T.81, B.2.2)."""
    place = 2
    while True:
        while content[place] == 0xFF:
            place += 1
        marker = content[place]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">2H", content[place + 4 : place + 8])
            return width, height
        if marker in (0xD9, 0xDA):
            raise IndexError("no frame before the scan")
        place += 1 + struct.unpack(">H", content[place + 1 : place + 3])[0]


def _webp_size(content: bytes) -> tuple[int, int]:
    """Size of a lossy, lossless or extended file (RFC 9649, 2.5–2.7)."""
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[at : at + 3], "little") + 1 for at in (24, 27))
        return width, height if content[29:30] else 0
    if kind == b"VP8L":
        (bits,) = struct.unpack("<I", content[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack("<2H", content[26:30])
    return width & 0x3FFF, height & 0x3FFF
