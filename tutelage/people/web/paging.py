"""Long lists in pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from tutelage.people.web.call import Call

LAST_PAGE = 100_000


@dataclass(frozen=True)
class Page:
    """One page of a list: its number from 1, how many lines a page has, whether more follow, and the address of the
    list without the number. `total` is the number of all lines, where it is known."""

    number: int
    size: int
    more: bool
    base: str
    total: int | None = None

    @property
    def count(self) -> int | None:
        """The number of pages, where it is known."""
        return None if self.total is None else max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        """The place of the first line in the whole list, from 1."""
        return (self.number - 1) * self.size + 1

    def address(self, number: int) -> str:
        """The address of another page of the list."""
        return f"{self.base}{'&' if '?' in self.base else '?'}page={number}"


def page_number(call: Call) -> int:
    """The number of the page that is asked for; 1 where it is none."""
    asked = call.text("page", "1")
    known = asked.isascii() and asked.isdecimal() and len(asked) < 9 and int(asked) > 0
    return min(int(asked), LAST_PAGE) if known else 1


def page_of(number: int, size: int, total: int, base: str) -> Page:
    """The page of a list whose length is known; the last one where there are not so many."""
    last = max(1, -(-total // size))
    return Page(min(number, last), size, number < last, base, total)


def with_query(path: str, asked: Mapping[str, str]) -> str:
    """The address with those parts of the query that say something."""
    said = {name: value for name, value in asked.items() if value}
    return f"{path}?{urlencode(said)}" if said else path
