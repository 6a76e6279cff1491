"""Pages for owners and reviewers, and their menu."""

from dataclasses import dataclass

from tutelage.people.languages import Sentence


@dataclass(frozen=True)
class Entry:
    """A menu entry: the `place` by which a page identifies itself, its address, its name, and whether reviewers see
    it."""

    place: str
    address: str
    name: Sentence
    reviewers: bool = False


@dataclass(frozen=True)
class Heading:
    """A group of menu entries."""

    name: Sentence
    entries: tuple[Entry, ...]

    def holds(self, place: str) -> bool:
        """Whether the page is in this group."""
        return any(entry.place == place for entry in self.entries)


MENU = (
    Heading(Sentence("Overview"), (Entry("overview", "/owner", Sentence("Overview"), reviewers=True),)),
    Heading(
        Sentence("Work"),
        (
            Entry("inbox", "/owner/inbox", Sentence("Inbox"), reviewers=True),
            Entry("items", "/owner/items", Sentence("Items"), reviewers=True),
            Entry("import", "/owner/import", Sentence("Import votes")),
            Entry("rate", "/rate", Sentence("Answer questions yourself")),
        ),
    ),
    Heading(
        Sentence("People"),
        (
            Entry("raters", "/owner/raters", Sentence("Raters"), reviewers=True),
            Entry("invitations", "/owner/invitations", Sentence("Invitations")),
            Entry("recruiting", "/owner/recruiting", Sentence("Recruiting")),
            Entry("team", "/owner/team", Sentence("Team")),
        ),
    ),
    Heading(
        Sentence("Results"),
        (
            Entry("models", "/owner/models", Sentence("Models"), reviewers=True),
            Entry("export", "/owner/export", Sentence("Export"), reviewers=True),
        ),
    ),
    Heading(
        Sentence("Study"),
        (
            Entry("settings", "/owner/settings", Sentence("Settings")),
            Entry("consent", "/owner/consent", Sentence("Consent")),
            Entry("programs", "/owner/programs", Sentence("Programs")),
            Entry("history", "/owner/history", Sentence("History"), reviewers=True),
        ),
    ),
)
"""The owner's menu. The page of one's own sessions is in the account menu instead."""


def menu_of(owner: bool) -> tuple[Heading, ...]:
    """The groups and entries available to an owner or a reviewer."""
    if owner:
        return MENU
    groups = (Heading(each.name, tuple(entry for entry in each.entries if entry.reviewers)) for each in MENU)
    return tuple(each for each in groups if each.entries)
