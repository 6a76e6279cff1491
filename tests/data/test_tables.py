"""Files become rows, and every way a file can be wrong has its own sentence."""

import codecs
import csv
import gzip
import io
import json
import tracemalloc
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data import tables
from tutelage.data.formats import load_demonstrations
from tutelage.data.readers import TEXT_READERS, TableRow
from tutelage.data.tables import is_rows, name_rows, parse_hub_name, read_table, table_of

ROWS = [
    {"prompt": "Say hé", "completion": "hé"},
    {"prompt": "two\nlines", "completion": 'a "quoted", word'},
    {"prompt": "separators \u2028 and \x85 inside", "completion": "日本語"},
]


def lines(rows: list[dict[str, object]]) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


def table_csv(rows: list[dict[str, str]], end: str = "\r\n", separator: str = ",") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator=end, delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet(rows: list[dict[str, object]]) -> bytes:
    import pyarrow
    from pyarrow import parquet as pq

    sink = io.BytesIO()
    pq.write_table(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue()


WRITTEN = {
    "array.json": json.dumps(ROWS).encode(),
    "object.json": json.dumps({"version": 1, "notes": [], "data": ROWS}).encode(),
    "lines.json": lines(ROWS),
    "lines.jsonl": lines(ROWS),
    "blank.jsonl": b"\n" + lines(ROWS).replace(b"\n", b"\n\n \n") + b"\n",
    "array.jsonl": json.dumps(ROWS).encode(),
    "lines.ndjson": lines(ROWS),
    "table.csv": table_csv(ROWS),
    "unix.csv": table_csv(ROWS, "\n"),
    "table.tsv": table_csv(ROWS, separator="\t"),
    "table.parquet": parquet(ROWS),
}


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def values(path: Path) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_table(path).rows]


@for_each(product(WRITTEN, [False, True]))
def test_every_kind_of_file_holds_the_same_rows(name: str, packed: bool, tmp_path: Path) -> None:
    content = gzip.compress(WRITTEN[name]) if packed else WRITTEN[name]
    path = write(tmp_path, name + ".gz" * packed, content)
    assert values(path) == ROWS
    assert read_table(path).columns == ("prompt", "completion")


@for_each([",", ";", "\t"])
def test_the_header_says_what_separates_the_columns(mark: str, tmp_path: Path) -> None:
    content = f'\n"prompt, a; b"{mark}completion\n"one, two; three"{mark}four\n'
    assert values(write(tmp_path, "a.csv", content.encode())) == [
        {"prompt, a; b": "one, two; three", "completion": "four"}
    ]


def test_lone_quotation_marks_of_a_tsv_are_text(tmp_path: Path) -> None:
    content = 'a\tb\n"Yes" is fine\tr1\n"Yes\tr2\n"two\nlines"\t"""no"""\n"No\tr3\nx\t5" disc\ny\t"\n'
    table = read_table(write(tmp_path, "a.tsv", content.encode()))
    assert [tuple(row.values.values()) for row in table.rows] == [
        ('"Yes" is fine', "r1"),
        ('"Yes', "r2"),
        ("two\nlines", '"no"'),
        ('"No', "r3"),
        ("x", '5" disc'),
        ("y", '"'),
    ]
    assert [row.where for row in table.rows] == [f"line {line}" for line in (2, 3, 4, 6, 7, 8)]
    assert table.broken == ()


@for_each([name for name in WRITTEN if not name.endswith(".parquet")])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(name: str, tmp_path: Path) -> None:
    content = WRITTEN[name] if name.endswith((".csv", ".tsv")) else WRITTEN[name].replace(b"\n", b"\r\n")
    assert values(write(tmp_path, name, b"\xef\xbb\xbf" + content)) == ROWS


def test_places_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    csv_path = write(tmp_path, "a.csv", b'text\none\n"two\nlines"\nthree\n')
    assert [row.where for row in read_table(csv_path).rows] == ["line 2", "line 3", "line 5"]
    jsonl = write(tmp_path, "a.jsonl", b'\n{"text": "one"}\n\n{"text": "two"}')
    assert [row.where for row in read_table(jsonl).rows] == ["line 2", "line 4"]
    text = write(tmp_path, "a.txt", b"\none\n \ntwo\nlines\n\n\n\nthree")
    assert read_table(text).rows == (
        TableRow("line 2", {"text": "one"}),
        TableRow("line 4", {"text": "two\nlines"}),
        TableRow("line 9", {"text": "three"}),
    )


@for_each(["{}", "[]", "[1, 2]", '{"a": 1}\nis JSON, and this is not', '"quoted"', "17"])
def test_a_text_about_json_stays_a_text(text: str, tmp_path: Path) -> None:
    assert values(write(tmp_path, "a.txt", text.encode())) == [{"text": text}]


def test_standard_input_is_no_data_set_of_the_hub() -> None:
    with pytest.raises(TutelageError, match="standard input"):
        read_table("-")


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1).filter(str.strip), min_size=1))
def test_documents_of_a_text_file_are_what_stands_between_blank_lines(tmp_path_factory, documents) -> None:  # type: ignore[no-untyped-def]
    path = write(tmp_path_factory.mktemp("txt"), "a.txt", "\n\n".join(documents).encode())
    assert [row.values["text"] for row in read_table(path).rows] == [document.strip() for document in documents]


def test_broken_lines_are_named_and_the_others_read(tmp_path: Path) -> None:
    table = read_table(
        write(tmp_path, "a.jsonl", b'{"text": "one"}\n{"text": \n[1]\n"x"\n{"text": "two"}\n' + b"9" * 5000)
    )
    assert [row.values["text"] for row in table.rows] == ["one", "two"]
    assert [(item.where, item.reason) for item in table.broken] == [
        ("line 2", "not valid JSON"),
        ("line 3", "a list instead of an object"),
        ("line 4", "a text instead of an object"),
        ("line 6", "not valid JSON"),
    ]


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_large_file_is_parsed_row_by_row_and_reads_the_same(
    end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"\xef\xbb\xbf" + lines(ROWS[:2]) + b"\n\n{broken\n[]\n" + lines([*ROWS[2:], {"level": 3}]) + end
    path = write(tmp_path, "rows.jsonl", content)
    whole = read_table(path)
    monkeypatch.setattr(tables, "MOST_IN_MEMORY", 9)
    table = read_table(path)
    assert not isinstance(table.rows, tuple)
    assert tuple(table.rows) == whole.rows == table.rows[:]
    assert [row.where for row in table.rows] == ["line 1", "line 2", "line 6", "line 7"]
    assert (table.broken, table.columns) == (whole.broken, whole.columns)
    assert table.sample(2).rows == (whole.rows[0], whole.rows[2])


def test_cells_below_an_empty_name_are_columns(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.csv", b"prompt,completion,\nq,a,5\nr,b,\ns,c\nt,d,5,6\n"))
    assert [dict(row.values) for row in table.rows] == [
        {"prompt": "q", "completion": "a", "Unnamed: 2": "5"},
        {"prompt": "r", "completion": "b"},
        {"prompt": "s", "completion": "c"},
    ]
    assert [row.where for row in table.broken] == ["line 5"]
    loaded = load_demonstrations(tmp_path / "a.csv")
    assert any("Unnamed: 2" in note for note in loaded.notes)


def test_csv_rows_of_another_width_are_named(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.csv", b"a,b\n1,2\n1,2,3\n1\n"))
    assert [(item.where, item.reason) for item in table.broken] == [
        ("line 3", "3 cells instead of 2"),
        ("line 4", "1 cell instead of 2"),
    ]


SPREADSHEETS = {
    "declared.csv": b'sep=;\r\nprompt;completion\r\n"Why; really?";"be;cause"\r\n',
    "marked.csv": b'\xef\xbb\xbfsep=;\nprompt;completion\n"Why; really?";be;cause\n'.replace(
        b"be;cause", b'"be;cause"'
    ),
    "wide.csv": b'prompt,completion,,\n"Why; really?",be;cause,,\n,,,\n',
    "unicode.tsv": "prompt\tcompletion\r\nWhy; really?\tbe;cause\r\n".encode("utf-16"),
    "big-endian.csv": codecs.BOM_UTF16_BE + "prompt,completion\nWhy; really?,be;cause\n".encode("utf-16-be"),
    "formula.csv": b'prompt,completion\n"=""Why; really?""","be;cause"\n',
    "mac.csv": b"prompt,completion\rWhy; really?,be;cause\r",
}


@for_each(SPREADSHEETS)
def test_a_table_is_read_as_spreadsheets_write_it(name: str, tmp_path: Path) -> None:
    table = read_table(write(tmp_path, name, SPREADSHEETS[name]))
    assert [row.values for row in table.rows] == [{"prompt": "Why; really?", "completion": "be;cause"}]
    assert table.broken == ()


def test_a_separator_line_counts_as_a_line(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a.csv", b"sep=;\na;b\n1;2\n1;2;3\n#NAME?;2\n"))
    assert [row.where for row in table.rows] == ["line 3"]
    assert [item.where for item in table.broken] == ["line 4", "line 5"]
    assert "#NAME?" in table.broken[1].reason


def test_csv_cells_may_be_long(tmp_path: Path) -> None:
    assert values(write(tmp_path, "a.csv", b"text\n" + b"x" * 200_000)) == [{"text": "x" * 200_000}]


REFUSED = {
    "empty.jsonl": (b"", "is empty"),
    "blank.txt": (b" \n\n", "is empty"),
    "lines.txt": (b"\xef\xbb\xbf" + lines(ROWS), "name it .jsonl"),
    "windows.txt": (lines(ROWS).replace(b"\n", b"\r\n"), "name it .jsonl"),
    "list.txt": (json.dumps(ROWS, indent=1).encode(), "name it .jsonl"),
    "nothing.json": (b"[]", "holds no rows"),
    "header.csv": (b"prompt,completion\n", "holds no rows"),
    "broken.json": (b'[{"a": 1},\n {"a": }]', "from line 2, character 8 on"),
    "number.json": (b"17", "holds a number, not a list of rows"),
    "two.json": (b'{"a": [{"x": 1}], "b": [{"x": 1}]}', "2 lists of rows"),
    "none.json": (b'{"a": 1, "b": 2}', "its keys: a, b"),
    "prose.jsonl": (b"Dear reader,\nthis is prose.", "line 1: not valid JSON"),
    "page.json": (b"\n<!DOCTYPE html><html></html>", "HTML page"),
    "page.csv": (b"<html><body>Not found</body></html>", "HTML page"),
    "binary.csv": (b"a,b\x00\x01\n1,2", "binary file"),
    "latin.csv": ("a\nx\ncafé".encode("latin-1"), "line 3"),
    "utf16.csv": ("a,b\n1,2".encode("utf-16")[:-1], "UTF-16"),
    "excel.csv": (b"PK\x03\x04rest", "office document"),
    "columns.jsonl": (parquet(ROWS), "a Parquet file"),
    "lines.parquet": (lines(ROWS), "not a Parquet file"),
    "cut.parquet": (parquet(ROWS)[:-9], "damaged Parquet"),
    "packed.jsonl": (gzip.compress(lines(ROWS)), "should end in .gz"),
    "plain.jsonl.gz": (lines(ROWS), "no complete gzip file"),
    "cut.jsonl.gz": (gzip.compress(lines(ROWS))[:-9], "no complete gzip file"),
    "pointer.json": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
    "twice.csv": (b"a,b,a\n1,2,3\n", "names a column twice"),
    "quotes.csv": (b'a,b\n"1"x,2\n', "no valid CSV from line 2 on"),
    "huge.json": (b"[" + b"1" * 5000 + b"]", "no valid JSON"),
    "deep.json": (b"[" * 200_000, "nested too deeply"),
    "sheet.xlsx": (b"PK\x03\x04rest", ".json, .jsonl"),
    "table.arrow": (b"ARROW1", ".json, .jsonl"),
    "noending": (b"{}", ".json, .jsonl"),
}


@for_each(REFUSED)
def test_a_file_that_cannot_be_read_is_refused_by_name_and_reason(name: str, tmp_path: Path) -> None:
    content, reason = REFUSED[name]
    path = write(tmp_path, name, content)
    with pytest.raises(TutelageError) as refusal:
        read_table(path)
    assert str(path) in str(refusal.value)
    assert reason in str(refusal.value)


def test_a_missing_file_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    for name in (str(tmp_path / "gone.jsonl"), "gone.csv", "./gone", "data/gone.jsonl.gz"):
        with pytest.raises(TutelageError, match=r"^There is no file .*gone[.a-z]*\.$"):
            read_table(name)


def test_a_folder_is_refused_with_the_files_in_it(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="is a folder"):
        read_table(tmp_path)
    write(tmp_path, "train.jsonl", b"{}")
    with pytest.raises(TutelageError, match=r"files in it: train\.jsonl"):
        read_table(tmp_path)


def test_a_key_given_twice_is_no_value(tmp_path: Path) -> None:
    """Of the two, a parser keeps the last: the row is named instead, or the whole array refused."""
    content = b'{"a": 1, "a": 2}\n{"a": {"b": 1, "b": 2}}\n{"a": "\\"a\\": 1"}\n'
    table = read_table(write(tmp_path, "a.jsonl", content))
    assert [(row.where, "twice" in row.reason) for row in table.broken] == [("line 1", True), ("line 2", True)]
    assert [row.values for row in table.rows] == [{"a": '"a": 1'}]
    with pytest.raises(TutelageError, match=r"key a .* twice"):
        read_table(write(tmp_path, "a.json", b'[{"a": 1, "a": 2}, {"a": 3}]'))


@for_each(
    [
        ("owner/name", ("owner/name", None, "train")),
        ("owner/name:test", ("owner/name", None, "test")),
        ("owner/name/config:test", ("owner/name", "config", "test")),
        ("owner/name/config", ("owner/name", "config", "train")),
        ("squad:validation", ("squad", None, "validation")),
        ("owner/name:train[:10%]", ("owner/name", None, "train[:10%]")),
    ]
)
def test_hub_names(source: str, parts: tuple[str, str | None, str]) -> None:
    assert parse_hub_name(source) == parts


def test_a_hub_data_set_is_read_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local folder in the hub's form stands in for the hub."""
    import datasets

    folder, cache = tmp_path / "hub", str(tmp_path / "cache")
    folder.mkdir()
    write(folder, "train.jsonl", lines(ROWS))
    write(folder, "test.jsonl", lines(ROWS[:1]))
    real = datasets.load_dataset
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, config, split: real(str(folder), config, split=split, cache_dir=cache)
    )
    assert [row.values for row in read_table("owner/name").rows] == ROWS
    assert read_table("owner/name:test").rows == (TableRow("row 1", ROWS[0]),)
    with pytest.raises(TutelageError, match=r"owner/name .*split gone\) could not be loaded: .*gone"):
        read_table("owner/name:gone")


# Rows in memory -------------------------------------------------------------------------------------------------------

TALK = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
KEPT = [{"messages": TALK, "level": 3.0, "note": "a"}, {"messages": TALK, "level": 4.0, "note": None}]


def test_rows_in_memory_are_read_as_a_file_of_them(tmp_path: Path) -> None:
    import datasets
    import numpy
    import pandas

    frame = pandas.DataFrame({"messages": [TALK, numpy.array(TALK)], "level": [3.0, 4.0], "note": ["a", numpy.nan]})
    frame.to_parquet(tmp_path / "rows.parquet")
    for rows in (
        KEPT,
        tuple(KEPT),
        datasets.Dataset.from_list(KEPT),
        frame,
        pandas.read_parquet(tmp_path / "rows.parquet"),
    ):
        assert is_rows(rows)
        assert [row.values for row in read_table(name_rows(rows)).rows] == KEPT


def test_the_name_of_rows_in_memory_follows_from_them() -> None:
    assert name_rows(KEPT) == name_rows([dict(row) for row in KEPT])
    assert name_rows(KEPT) != name_rows(KEPT[::-1])
    with pytest.raises(TutelageError, match="another process"):
        read_table("in_memory:rows_0123456789abcdef")


def test_rows_that_are_none_are_refused() -> None:
    import datasets

    with pytest.raises(TutelageError, match="no rows"):
        name_rows([])
    with pytest.raises(TutelageError, match="train, test"):
        name_rows(
            datasets.DatasetDict({"train": datasets.Dataset.from_list(KEPT), "test": datasets.Dataset.from_list(KEPT)})
        )
    for value in ("rows.jsonl", Path("rows.jsonl"), {"a": 1}, ["a"], 3):
        assert not is_rows(value)


def test_a_file_that_unfolds_to_more_than_the_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet as pq

    def packed(column: object, **options: object) -> bytes:
        sink = io.BytesIO()
        pq.write_table(pyarrow.table({"text": column}), sink, **options)
        return sink.getvalue()

    plain = pyarrow.array(["x" * 1_000] * 20_000)
    numbers = pyarrow.array([0] * 20_000, pyarrow.int32())
    repeated = pyarrow.DictionaryArray.from_arrays(numbers, pyarrow.array(["x" * 1_000]))  # one text, 20,000 times
    bombs = {
        "footer.parquet": packed(plain, use_dictionary=False, compression="zstd"),  # 20 MB in the row groups
        "dictionary.parquet": packed(plain, compression="zstd"),  # 20 MB of rows, a few kB in the row groups
        "list.parquet": packed(pyarrow.ListArray.from_arrays(pyarrow.array([0, 20_000], pyarrow.int32()), repeated)),
        "lines.csv.gz": gzip.compress(b"text\n" + b"x" * 20_000_000),
    }
    for name, content in bombs.items():
        assert len(content) < 100_000, name
        with pytest.raises(TutelageError, match=name):
            table_of(name, content, most=2_000_000)
        assert len(table_of(name, content, most=30_000_000).rows) == (
            20_000 if name in ("footer.parquet", "dictionary.parquet") else 1
        )
    with pytest.raises(TutelageError, match="gzip"):
        table_of("cut.csv.gz", bombs["lines.csv.gz"][:-9], most=30_000_000)


@for_each(
    [
        '{"a": NaN, "b": -Infinity, "c": 1e999, "d": -0, "e": -0.0}',
        '{"a": "\\ud83d", "b": "\\ud83d\\ude00", "c": "\u2028", "d": "\\u0000"}',
        '{"a": 1, "b": 123456789012345678901234567890, "c": 0.1e-400}',
        '{"a": 2.2250738585072011e-308, "b": 9007199254740993.0, "c": [[], {}], "d": null}',
    ]
)
def test_a_line_has_the_value_that_the_standard_library_reads(line: str) -> None:
    (row,) = table_of("a.jsonl", line.encode()).rows
    assert repr(row.values) == repr(json.loads(line))


def test_a_csv_file_is_read_beside_its_text_alone() -> None:
    """The text for the check of its encoding, at most twice while it is decoded, and a row at a time."""
    content = table_csv([{"prompt": "rain " * 2_000, "completion": "e"}] * 40)
    tracemalloc.start()
    try:
        assert sum(1 for _ in TEXT_READERS[".csv"]("a.csv", content)) == 40
        assert tracemalloc.get_traced_memory()[1] < 2.5 * len(content)
    finally:
        tracemalloc.stop()
