"""Which types of the signatures on the pages about the Python API are described, and where: what the site links."""

import json
import re
from collections.abc import Callable, Iterator, Mapping

import griffe

from reference.source import package
from tutelage.commands.table import COMMANDS

Member = griffe.Object | griffe.Alias


def slugs(text: str) -> Iterator[tuple[str, str]]:
    """The headings of a page in order, with the anchors that GitHub and the site give them."""
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        yield heading, f"{slug}-{count}" if count else slug


def described(pages: Mapping[str, str], is_alias: Callable[[Member], bool]) -> dict[str, str]:
    """Where each module, class, function and alias is described: its path in the package, and `page.md#anchor`."""
    found = {}
    for page, text in pages.items():
        module = ""
        for heading, slug in slugs(text):
            if heading.startswith("tutelage."):
                module = heading
                members = package()[module.removeprefix("tutelage.")].members.values()
                found |= {one.path: f"{page}#{slug}" for one in members if is_alias(one)}
                found[module] = f"{page}#{slug}"
            elif module:
                found[f"{module}.{heading}"] = f"{page}#{slug}"
    return found | dict(settings())


def settings() -> Iterator[tuple[str, str]]:
    """The settings of commands that Python is offered, which the pages of the commands describe."""
    for command in COMMANDS:
        if command.result is not None:
            module = package()[f"{command.module.removeprefix('tutelage.')}.settings"]
            yield from (
                (one, f"reference/cli/{command.name}.md")
                for one in map(str, _classes(module))
                if one.endswith("Settings")
            )


def _classes(module: griffe.Module | griffe.Alias) -> Iterator[str]:
    return (one.path for one in module.members.values() if not one.is_alias and one.is_class)


def links(places: Mapping[str, str]) -> str:
    """The names in the signatures of each described module, with the places that describe them, as JSON."""
    found = {}
    for path in sorted(places):
        if (module := package()[path.removeprefix("tutelage.")]).is_module:
            names = {name: places[one] for name, one in _used(module) if one in places}
            found[path] = dict(sorted(names.items()))
    return json.dumps(found, indent=1) + "\n"


def _used(module: Member) -> Iterator[tuple[str, str]]:
    """The names that the annotations of a module use, as they are written, with their paths in the package."""
    for member in module.members.values():
        if member.is_alias:
            continue
        if member.is_function:
            hints = [member.returns, *(one.annotation for one in member.parameters)]
        elif member.is_class:
            hints = list(member.bases)
            yield from _used(member)
        elif member.is_attribute:
            hints = [member.annotation, member.value]
        else:
            continue
        for hint in hints:
            if isinstance(hint, griffe.Expr):
                yield from (
                    (one.name, _defined(one.canonical_path))
                    for one in hint.iterate(flat=True)
                    if isinstance(one, griffe.ExprName)
                )


def _defined(path: str) -> str:
    """The path at which a name is defined, through the packages that only pass it on."""
    if not path.startswith("tutelage."):
        return path
    try:
        return package()[path.removeprefix("tutelage.")].canonical_path
    except (KeyError, griffe.AliasResolutionError):
        return path
