"""Prints the section of the changelog about a version, for its release: `python scripts/release_notes.py v0.2.0`.

Fails with a sentence where the tag is not the version of the package, or where the changelog has no section about it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str, root: Path = ROOT) -> str:
    """The section about the version that `tag` names, without its heading. Raises ValueError with the reason."""
    source = (root / "tutelage" / "base" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    version = found[1] if found else "unknown"
    if tag != f"v{version}":
        raise ValueError(
            f"The tag is {tag}, but tutelage/base/version.py says {version}: tag v{version}, or change it."
        )
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if heading.startswith(f"[{version}]") and text.strip():
            return text.strip()
    raise ValueError(f"CHANGELOG.md has no section ## [{version}]: give the section about it that heading.")


def main() -> int:
    """Print the notes, or the reason why there are none."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(notes(sys.argv[1]))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
