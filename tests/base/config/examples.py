"""Settings with a field of every type, and strategies that draw them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hypothesis import strategies as st

from tutelage.base.config import Model


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    kind: Literal["plain", "fancy", 3] = "plain"
    pair: tuple[int, str] = (1, "one")
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Everything:
    text: str
    count: int = 0
    flag: bool = True
    limit: int | None = 7
    note: str | None = None
    amount: int | float = 0
    place: Path | None = None
    weights: dict[str, float] = field(default_factory=dict)
    inner: Inner = field(default_factory=lambda: Inner(rate=0.25))
    maybe: Inner | None = None


@dataclass(frozen=True)
class Outer:
    model: Model


floats = st.floats(allow_nan=False, allow_infinity=False)
inners = st.builds(
    Inner,
    rate=floats,
    kind=st.sampled_from(["plain", "fancy", 3]),
    pair=st.tuples(st.integers(), st.text()),
    names=st.lists(st.text()).map(tuple),
)
everythings = st.builds(
    Everything,
    text=st.text(),
    count=st.integers(),
    flag=st.booleans(),
    limit=st.none() | st.integers(),
    note=st.none() | st.text().filter(lambda text: text != "None"),
    amount=st.integers() | floats,
    place=st.none() | st.just(Path("a/b c")),
    weights=st.dictionaries(st.text(), floats),
    inner=inners,
    maybe=st.none() | inners,
)
