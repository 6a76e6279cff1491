"""Write what follows from the public address of the repository (`tutelage/base/version.py`) into the files of the
repository: the badge of the README and the address in CITATION.cff, or neither while there is none. `make pages` runs
it."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKFLOW = "actions/workflows/tests.yml"


def readme(text: str, repository: str) -> str:
    """The README with the badge of its tests."""
    text = re.sub(r"^\[!\[tests\].*\n", "", text, flags=re.MULTILINE)
    badge = f"[![tests]({repository}/{WORKFLOW}/badge.svg)]({repository}/{WORKFLOW})\n" if repository else ""
    return text.replace("\n\n", f"\n\n{badge}", 1)


def citation(text: str, repository: str) -> str:
    """The citation with its address."""
    text = re.sub(r"^repository-code: .*\n", "", text, flags=re.MULTILINE)
    address = f"repository-code: {repository}\n" if repository else ""
    return re.sub(r"^(license: .*\n)", rf"\1{address}", text, flags=re.MULTILINE)


WRITTEN = {"README.md": readme, "CITATION.cff": citation}

if __name__ == "__main__":
    repository = runpy.run_path(str(ROOT / "tutelage" / "base" / "version.py"))["REPOSITORY"]
    for name, written in WRITTEN.items():
        file = ROOT / name
        file.write_text(written(file.read_text(encoding="utf-8"), repository), encoding="utf-8")
