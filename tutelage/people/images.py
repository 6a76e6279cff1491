"""Images in the texts of a study: Markdown with the address images/NAME, where NAME is the SHA-256 of a file in the
study and its kind.

`Gallery` makes such texts from records, and collects the files; `as_parts` makes messages with parts from them again,
for training data and exports. A browser fetches images only from the study: any other image of a text is shown as its
words or its address.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.formats import LoadedRecords
from tutelage.data.images import BadImage, ImageFile, is_remote, read_image
from tutelage.data.records import (
    AssistantTurn,
    CompletionRecord,
    ImagePart,
    Message,
    Messages,
    Preference,
    Prompt,
    spoken,
)

T = TypeVar("T", Preference, Prompt, CompletionRecord)

FOLDER = "images"
"""Folder of the files in an export, and the beginning of their addresses."""
NAME = r"[0-9a-f]{64}\.(?:png|jpeg|webp|gif)"
MOST_IN_ALL = 512 << 20
"""Bytes of the images that are added to a study at once."""
_WORDS = r"(?:\\.|[^\[\]\\\n])*"
_STORED = re.compile(rf"(?:\n\n)?!\[({_WORDS})\]\({FOLDER}/({NAME})\)(?:\n\n)?")
_MARKDOWN = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+)[\s\S]*?(?:^ {0,3}(?P=fence)|\Z)|(?<!`)(?P<ticks>`++)[\s\S]*?(?P=ticks)"  # code
    rf"|(?P<head>!\[{_WORDS}\]\(\s*)(?P<address><[^<>\n]*>|[^\s()<>]+)(?P<tail>(?:\s+\"[^\"\n]*\")?\s*\))",
    re.M,
)


def image_names(text: str) -> tuple[str, ...]:
    """Names of the images in a text of a study."""
    return tuple(match[2] for match in _STORED.finditer(text)) if f"]({FOLDER}/" in text else ()


def image_spots(text: str) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of what is not words in the images of a text of a study: `![` and `](images/NAME)`."""
    for match in _STORED.finditer(text) if f"]({FOLDER}/" in text else ():
        yield match.start(1) - 2, match.start(1)
        yield match.end(1), match.end(2) + 1


def refuse_images(texts: Iterable[str], item: str, reader: str) -> None:
    """Raise TutelageError if one of the texts of an item has an image, with the name of the item and of the `reader`,
    which reads text alone."""
    if any(map(image_names, texts)):
        raise TutelageError(f"{item} has an image, and {reader} reads text alone; exclude such items.")


def as_parts(text: str) -> tuple[str, tuple[ImagePart, ...]]:
    """A text of a study without its images, and the images."""
    texts, images, start = list[str](), list[ImagePart](), 0
    for match in _STORED.finditer(text) if image_names(text) else ():
        texts.append(text[start : match.start()])
        words = re.sub(r"\\(.)", r"\1", match[1])
        images.append(ImagePart(sum(map(len, texts)), f"{FOLDER}/{match[2]}", words))
        start = match.end()
    return "".join((*texts, text[start:])), tuple(images)


def as_markdown(words: str, address: str) -> str:
    """An image in a text of a study."""
    escaped = re.sub(r"([\\\[\]])", r"\\\1", " ".join(words.split()))
    return f"![{escaped}]({address})"


def turn_with_parts(turn: AssistantTurn) -> AssistantTurn:
    """A response of a study as the assistant's turn, with its images as parts."""
    return spoken(_message_with_parts(Message("assistant", turn) if isinstance(turn, str) else turn))


def with_parts(messages: Messages) -> Messages:
    """A conversation of a study with its images as parts."""
    return tuple(map(_message_with_parts, messages))


def _message_with_parts(message: Message) -> Message:
    content, images = as_parts(message.content)
    return replace(message, content=content, images=images) if images else message


class Gallery:
    """The images of records from one source, whose files are in a folder (None: only images within the rows). `files`
    are those to store, by name; `notes` says which images are not shown."""

    def __init__(self, source: str, folder: Path | None) -> None:
        self.source, self.folder = source, folder
        self.files: dict[str, ImageFile] = {}
        self._names: dict[str, str] = {}
        self._not_shown: dict[str, list[str]] = {}

    def records(self, loaded: LoadedRecords[T]) -> Iterator[T]:
        """The records as texts of a study; the images of each are read when it is. Raises TutelageError if an image
        part has no file that can be shown, or the images are too large."""
        places = zip(loaded.records, loaded.places, strict=True)
        return (cast(T, self._record(record, where)) for record, where in places)

    def _record(
        self, record: Preference | Prompt | CompletionRecord, where: str
    ) -> Preference | Prompt | CompletionRecord:
        if isinstance(record, CompletionRecord):
            steps = tuple(
                self._text(step, where) if isinstance(step, str) else tuple(self._message(one, where) for one in step)
                for step in record.steps
            )
            return replace(record, text=self._text(record.text, where), steps=steps)
        messages = tuple(self._message(message, where) for message in record.messages)
        if isinstance(record, Prompt):
            return replace(record, messages=messages)
        chosen, rejected = (self._turn(turn, where) for turn in (record.chosen, record.rejected))
        return replace(record, messages=messages, chosen=chosen, rejected=rejected)

    def _turn(self, turn: AssistantTurn, where: str) -> AssistantTurn:
        return self._text(turn, where) if isinstance(turn, str) else spoken(self._message(turn, where))

    def _message(self, message: Message, where: str) -> Message:
        """The message with its parts as Markdown, each in a paragraph of its own."""
        blocks, start = list[str](), 0
        for image in message.images:
            blocks += [self._text(message.content[start : image.place], where), self._part(image, where)]
            start = image.place
        blocks.append(self._text(message.content[start:], where))
        return replace(message, content="\n\n".join(filter(None, blocks)), images=())

    def _part(self, image: ImagePart, where: str) -> str:
        if is_remote(image.address):
            self._omit("at an address of the internet, which the pages of raters never open", where)
            address = re.sub(r"[<>\s]", "", image.address)
            return as_markdown(image.words, f"<{address}>")
        try:
            return as_markdown(image.words, self._store(image.address))
        except BadImage as reason:
            raise TutelageError(
                f"{self.source}, {where}: the image {image.address[:80]!r} cannot be shown: {reason}."
            ) from reason

    def _text(self, text: str, where: str) -> str:
        """The text with the addresses of stored images, for images of its Markdown that are in the folder."""

        def stored(match: re.Match[str]) -> str:
            if match["head"] is None:
                return match[0]
            address = match["address"].removeprefix("<").removesuffix(">")
            if is_remote(address):
                self._omit("at an address of the internet, which the pages of raters never open", where)
                return match[0]
            try:
                return match["head"] + self._store(address) + match["tail"]
            except BadImage as reason:
                self._omit(f"named in Markdown, but {reason}", where)
                return match[0]

        return _MARKDOWN.sub(stored, text) if "](" in text and "![" in text else text

    def _store(self, address: str) -> str:
        if address not in self._names:
            file = read_image(address, self.folder)
            self.files[file.name], self._names[address] = file, file.name
            total = sum(len(each.content) for each in self.files.values())
            if total > MOST_IN_ALL:
                raise TutelageError(
                    f"The images of {self.source} have more than {MOST_IN_ALL >> 20} MiB in all; make them smaller, or "
                    "add the questions in parts (--limit)."
                )
        return f"{FOLDER}/{self._names[address]}"

    def _omit(self, reason: str, where: str) -> None:
        self._not_shown.setdefault(reason, []).append(where)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the images."""
        size = sum(len(file.content) for file in self.files.values()) / 2**20
        notes = [f"{counted(len(self.files), 'image')} copied into the study, {size:,.1f} MiB"] if self.files else []
        for reason, places in self._not_shown.items():
            notes.append(f"{counted(len(places), 'image', 'is')} shown as text: {reason} (first: {places[0]})")
        return tuple(notes)
