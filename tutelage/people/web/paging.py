"""Pagination of long lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from tutelage.people.web.call import Call

LAST_PAGE = 100_000


@dataclass(frozen=True)
class Page:
    """One page of a list: its number from 1, rows per page, whether more follow, and the list's address without the
    page number. `total` is the number of all rows, if known."""

    number: int
    size: int
    more: bool
    base: str
    total: int | None = None

    @property
    def count(self) -> int | None:
        """The number of pages, if known."""
        return None if self.total is None else max(1, -(-self.total // self.size))

    @property
    def first(self) -> int:
        """The 1-based position of the first row in the whole list."""
        return (self.number - 1) * self.size + 1

    def address(self, number: int) -> str:
        """The address of another page of the list."""
        return f"{self.base}{'&' if '?' in self.base else '?'}page={number}"


def page_number(call: Call) -> int:
    """The requested page number; 1 if missing or invalid."""
    text = call.text("page", "1")
    valid = text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 0
    return min(int(text), LAST_PAGE) if valid else 1


def page_of(number: int, size: int, total: int, base: str) -> Page:
    """A page of a list of known length; the last page if `number` is beyond it."""
    last = max(1, -(-total // size))
    return Page(min(number, last), size, number < last, base, total)


def with_query(path: str, parameters: Mapping[str, str]) -> str:
    """The address with the non-empty query parameters."""
    query = {name: value for name, value in parameters.items() if value}
    return f"{path}?{urlencode(query)}" if query else path
