"""Search in the rows of a file by BM25.

With f the number of occurrences of a word in a document of l words, l̄ the mean length, N documents of which n have the
word,

    score(q, d) = Σ_{w ∈ q} ln(1 + (N − n + ½) / (n + ½)) · f (k₁ + 1) / (f + k₁ (1 − b + b l / l̄))

(Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009; the logarithm of Lucene, which is
never negative). Words are those of `data.text_counts`. Equal scores are in the order of the rows.
"""

import logging
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.readers import TableRow
from tutelage.data.tables import read_table
from tutelage.data.text_counts import words
from tutelage.rollout.tools.tool import Tool, tool_of, without_middle

log = logging.getLogger(__name__)

K1, B = 1.2, 0.75
"""Saturation of a word's occurrences, and weight of a document's length."""
MOST = 20
"""Results at most."""
LONGEST = 1_000
"""Characters of a document in a result."""


class Index:
    """Words of documents, for scores by BM25."""

    def __init__(self, documents: Iterable[str]) -> None:
        self._places: defaultdict[str, array[int]] = defaultdict(lambda: array("l"))
        self._counts: defaultdict[str, array[int]] = defaultdict(lambda: array("l"))
        self._lengths = array("l")
        for place, document in enumerate(documents):
            counts = Counter(words(document))
            self._lengths.append(counts.total())
            for word, count in counts.items():
                self._places[word].append(place)
                self._counts[word].append(count)
        self._mean = sum(self._lengths) / max(len(self._lengths), 1) or 1.0

    def scores(self, query: str) -> dict[int, float]:
        """Scores of the documents that have a word of the query, by their places from 0."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in words(query):
            if word not in self._places:
                continue
            n = len(self._places[word])
            weight = math.log(1 + (len(self._lengths) - n + 0.5) / (n + 0.5))
            for place, f in zip(self._places[word], self._counts[word], strict=True):
                scores[place] += weight * f * (K1 + 1) / (f + K1 * (1 - B + B * self._lengths[place] / self._mean))
        return dict(scores)

    def best(self, query: str, most: int) -> list[int]:
        """Places of the documents of highest scores, best first."""
        scores = self.scores(query)
        return sorted(scores, key=lambda place: (-scores[place], place))[:most]


def search_of(file: str) -> Tool:
    """Tool `search` over the rows of a file: jsonl, json, csv, tsv, parquet, or the paragraphs of a txt.

    A row is named by its column `id`, or else by its place ("line 12"). Its document consists of its other texts and
    numbers; if there are several columns, each has its name before it. Raises TutelageError for a file that cannot be
    read, or has no text.
    """
    if not Path(file).expanduser().is_file():
        raise TutelageError(f"There is no file {file}; search:FILE searches in the rows of a file.")
    table = read_table(file)
    ids, documents = list[str](), list[str]()
    for row in table.rows:
        ids.append(row.where if row.values.get("id") is None else str(row.values["id"]))
        documents.append(_document(row))
    if not any(documents):
        raise TutelageError(f"No row of {file} has a text to search in; its columns are {', '.join(table.columns)}.")
    if table.broken:
        first = table.broken[0]
        log.warning(
            f"{counted(len(table.broken), 'row')} of {file} cannot be read and are not searched; the first, "
            f"{first.where}: {first.reason}."
        )
    return tool_of(_search(Index(documents), ids, documents))


def _search(index: Index, ids: Sequence[str], documents: Sequence[str]) -> Callable[..., str]:
    def search(query: str, results: int = 3) -> str:
        """Search for documents by words.

        Args:
            query: Words to search for.
            results: Number of documents, from 1 to 20.
        """
        best = index.best(query, min(max(results, 1), MOST))
        if not best:
            return "No document has one of these words."
        return "\n\n".join(f"[{ids[place]}] {without_middle(documents[place], LONGEST)}" for place in best)

    return search


def _document(row: TableRow) -> str:
    cells = {
        name: str(value).strip()
        for name, value in row.values.items()
        if name != "id" and isinstance(value, str | int | float) and not isinstance(value, bool)
    }
    cells = {name: text for name, text in cells.items() if text}
    return (
        next(iter(cells.values())) if len(cells) == 1 else "\n".join(f"{name}: {text}" for name, text in cells.items())
    )
