"""Rubrics: the weighted criteria of a good response to one prompt, and its score by their verdicts.

A criterion is met or not; one with negative points describes a fault. With points p_c and verdicts v_c ∈ {0, 1},

    score = Σ_c p_c v_c / Σ_{c: p_c > 0} p_c  ≤ 1,

over the criteria with a verdict (Arora et al. 2025, HealthBench, arXiv 2505.08775; Gunjal et al. 2025, Rubrics as
Rewards, 2507.17746). A missing verdict is no 0: its criterion leaves both sums, and if the missing ones have more than
`MOST_MISSING` of the absolute points, or none of those left has positive points, there is no score.

`read_rubric` reads a cell of a table: a list of objects with `criterion`, or `title` and `description`, and `points` or
`weight` (1 by default), as JSON or as values; a list of texts; or a text with one numbered or bulleted criterion a
line, as in OpenRubrics (Liu et al. 2025, 2510.07743).
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tutelage.base.errors import TutelageError
from tutelage.data.json_values import parse_json

COLUMNS = ("rubric", "rubrics")
"""Columns with rubrics: of Rubrics as Rewards and OpenRubrics, and of HealthBench and RubricBench."""
MOST_MISSING = 0.25
"""Maximum share of a rubric's absolute points whose verdicts may be missing from a score."""

_LISTED = re.compile(r"\s*(?:[-*•]|\(?\d+[.):])\s+(\S.*)")


@dataclass(frozen=True)
class Criterion:
    """A criterion of a rubric, and the points of a response that meets it; negative ones for a fault."""

    text: str
    points: float = 1.0


Rubric = tuple[Criterion, ...]


def read_rubric(cell: object) -> Rubric:
    """The rubric in a cell of a table. Raises TutelageError for anything else, saying what."""
    rubric = tuple(_criterion(part, number) for number, part in enumerate(_parts(cell), 1))
    texts = Counter(criterion.text for criterion in rubric)
    if repeated := [text for text, count in texts.items() if count > 1]:
        raise TutelageError(f"The criterion '{repeated[0][:60]}' occurs twice.")
    if not any(criterion.points > 0 for criterion in rubric):
        raise TutelageError("No criterion has positive points, so that no response could earn any.")
    return rubric


def rubric_of(data: Mapping[str, object], where: str) -> Rubric:
    """The rubric in the own columns of a row. Raises TutelageError, naming `where`, if it is missing or unreadable."""
    column = next((name for name in COLUMNS if data.get(name) is not None), None)
    if column is None:
        raise TutelageError(
            f"{where} has no rubric: a judge by rubric reads the column {' or '.join(COLUMNS)}, with criteria such as "
            '[{"criterion": "Names the cause", "points": 5}].'
        )
    try:
        return read_rubric(data[column])
    except TutelageError as error:
        raise TutelageError(f"The {column} of {where} cannot be read: {error}") from error


def rubric_rows(rubric: Rubric) -> list[dict[str, object]]:
    """The inverse of `read_rubric`, as JSON values."""
    return [{"criterion": criterion.text, "points": criterion.points} for criterion in rubric]


def rubric_score(rubric: Rubric, verdicts: Sequence[bool | None]) -> float | None:
    """The score of a response by its verdicts, one for each criterion, None for a missing one; None without a score."""
    judged = [(each.points, verdict) for each, verdict in zip(rubric, verdicts, strict=True) if verdict is not None]
    best = sum(points for points, _ in judged if points > 0)
    missing = 1 - sum(abs(points) for points, _ in judged) / sum(abs(criterion.points) for criterion in rubric)
    if best == 0 or missing > MOST_MISSING + 1e-9:
        return None
    return sum(points for points, met in judged if met) / best


def _parts(cell: object) -> Sequence[object]:
    if isinstance(cell, str) and cell.lstrip().startswith(("[", "{")):
        try:
            cell = parse_json(cell)
        except ValueError as error:
            raise TutelageError(f"It begins like JSON and is none ({error}).") from error
    if isinstance(cell, str):
        cell = _lines(cell)
    if not isinstance(cell, Sequence) or not cell:
        raise TutelageError("It is no list of criteria.")
    return cell


def _lines(text: str) -> list[str]:
    """The criteria of a numbered or bulleted list; lines without a mark continue the one before."""
    found: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        listed = _LISTED.fullmatch(line)
        if listed:
            found.append(listed[1].strip())
        elif found:
            found[-1] += f" {line.strip()}"
        else:
            raise TutelageError(
                f"Its first line '{line.strip()[:60]}' has no number or bullet: begin each criterion so."
            )
    return found


def _criterion(part: object, number: int) -> Criterion:
    if isinstance(part, str):
        part = {"criterion": part}
    if not isinstance(part, Mapping):
        raise TutelageError(f"Criterion {number} is a {type(part).__name__}, not an object.")
    names = ("criterion",) if part.get("criterion") else ("title", "description")
    text = ": ".join(str(part[name]).strip() for name in names if part.get(name))
    if not text:
        raise TutelageError(f"Criterion {number} has neither criterion, nor title or description.")
    points = next((part[name] for name in ("points", "weight") if part.get(name) is not None), 1.0)
    if isinstance(points, bool) or not isinstance(points, int | float) or not math.isfinite(points) or not points:
        raise TutelageError(f"The points of criterion {number} ({points!r}) must be a finite number other than 0.")
    return Criterion(text, float(points))
