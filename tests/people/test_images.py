"""Images in the texts of a study: what becomes of them on the way in, and on the way out."""

import base64
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each
from pictures import png

from tutelage.base.errors import TutelageError
from tutelage.data.formats import LoadedRecords
from tutelage.data.images import image_file
from tutelage.data.records import CompletionRecord, ImagePart, Message, Preference, Prompt
from tutelage.people.images import Gallery, as_parts, image_names, refuse_images, turn_with_parts, with_parts

FILE = image_file(png())
URI = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
SHOWN = f"images/{FILE.name}"


def loaded(*records: object) -> LoadedRecords:
    places = tuple(f"line {number}" for number, _ in enumerate(records, 1))
    return LoadedRecords("data.jsonl", "rows", (), len(records), records, places=places)


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "notes.png").write_text("not an image")
    return Gallery("data.jsonl", tmp_path)


def text_of(gallery: Gallery, text: str) -> str:
    (record,) = gallery.records(loaded(CompletionRecord("c", "p", text, "m")))
    return record.text


def test_parts_become_paragraphs_and_come_back(gallery: Gallery) -> None:
    prompt = Message("user", "Before.After.", images=(ImagePart(7, "a.png", "a [red] \\ field"), ImagePart(13, URI)))
    answer = Message("assistant", "", images=(ImagePart(0, "a.png"),))
    (pair,) = gallery.records(loaded(Preference((prompt,), answer, "words")))
    text = f"Before.\n\n![a \\[red\\] \\\\ field]({SHOWN})\n\nAfter.\n\n![]({SHOWN})"
    assert pair == Preference((Message("user", text),), f"![]({SHOWN})", "words")
    assert list(gallery.files) == [FILE.name]
    assert image_names(text) == (FILE.name, FILE.name)
    images = (ImagePart(7, SHOWN, "a [red] \\ field"), ImagePart(13, SHOWN))
    assert with_parts(pair.messages) == (Message("user", "Before.After.", images=images),)
    assert turn_with_parts(f"![]({SHOWN})") == Message("assistant", "", images=(ImagePart(0, SHOWN),))
    assert turn_with_parts("words") == "words"


@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8), max_size=5),
    st.text("ab[]\\()! `", max_size=9).map(str.strip),
)
def test_texts_around_images_are_kept_exactly(texts: list[str], words: str) -> None:
    """The content and the places of the images are those of the message, whatever its texts are."""
    words = " ".join(words.split())
    ends = [sum(map(len, texts[: n + 1])) for n in range(len(texts))]
    message = Message("user", "".join(texts), images=tuple(ImagePart(end, URI, words) for end in ends))
    (prompt,) = Gallery("data", None).records(loaded(Prompt("p", (message,))))
    content, images = as_parts(prompt.messages[0].content)
    assert content == message.content
    assert images == tuple(ImagePart(end, SHOWN, words) for end in ends)


@for_each(
    [
        ("![x](a.png)", f"![x]({SHOWN})"),
        ('see ![x](<a.png> "title") here', f'see ![x]({SHOWN} "title") here'),
        (f"![x]({URI})", f"![x]({SHOWN})"),
        ("`![x](a.png)`", None),
        ("```\n![x](a.png)\n```", None),
        ("![x](https://x.test/a.png)", None),
        ("![x](//x.test/a.png)", None),
        ("![x](../a.png)", None),
        ("![x](notes.png)", None),
        ("[x](a.png)", None),
        ("![x](javascript:alert(1))", None),
    ]
)
def test_images_of_markdown_are_those_in_the_folder(text: str, expected: str | None, gallery: Gallery) -> None:
    assert text_of(gallery, text) == (expected or text)
    assert (f"]({SHOWN}" in text_of(gallery, text)) == (expected is not None)


def test_each_image_that_is_not_shown_is_counted_with_its_first_place(gallery: Gallery) -> None:
    far = Message("user", "x", images=(ImagePart(0, "https://x.test/a.png", "far"),))
    rows = [CompletionRecord("c", "p", "![x](b.png)", "m"), Prompt("p", (far,)), Prompt("q", (far,))]
    shown = list(gallery.records(loaded(*rows)))
    assert shown[1].messages == (Message("user", "![far](<https://x.test/a.png>)\n\nx"),)
    (missing, remote) = gallery.notes
    assert missing.startswith("1 image")
    assert "line 1" in missing
    assert remote.startswith("2 images")
    assert "line 2" in remote


@for_each(["b.png", "notes.png", "../a.png", "data:image/svg+xml,<svg/>"])
def test_a_part_without_an_image_is_refused_with_its_row(address: str) -> None:
    rows = loaded("?", Prompt("p", (Message("user", "", images=(ImagePart(0, address),)),)))
    with pytest.raises(TutelageError, match=r"data\.jsonl, line 2") as caught:
        list(Gallery("data.jsonl", Path(__file__).parent).records(rows.only(lambda row: row != "?")))
    assert address[:20] in str(caught.value)


def test_too_many_bytes_are_refused(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutelage.people.images.MOST_IN_ALL", len(png()))
    assert text_of(gallery, "![x](a.png)") == f"![x]({SHOWN})"
    other = base64.b64encode(png(shade=3)).decode()
    with pytest.raises(TutelageError, match="MiB"):
        text_of(gallery, f"![x](data:;base64,{other})")


@for_each(["![", "`", "![a]", "![](", "[", "`` ` ", "~~~\n", "![x](a.png", "\\"])
def test_hostile_texts_are_read_in_time(part: str, gallery: Gallery) -> None:
    """In a time that grows with the length of the text, not with its square."""
    text = part * (60_000 // len(part)) + f"![x](images/{FILE.name})"
    start = time.perf_counter()
    text_of(gallery, text)
    image_names(text)
    assert time.perf_counter() - start < 5


def test_readers_of_text_refuse_images() -> None:
    refuse_images(["![x](a.png)", "images/"], "it", "a judge")
    with pytest.raises(TutelageError, match=r"The item 'k'.*a judge"):
        refuse_images(["", f"![]({SHOWN})"], "The item 'k'", "a judge")
