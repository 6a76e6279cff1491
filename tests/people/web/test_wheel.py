"""The wheel, as a stranger installs it: nothing is missing, and it serves its pages without torch or network."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from tutelage.base.extras import EXTRAS

from .test_serving import PAIRS, serving

ROOT = Path(__file__).parents[3]
GUARD = """
{absent}
hide(*{names!r})
import tutelage
assert tutelage.__file__.startswith({installed!r}), tutelage.__file__
def refuse(event, args):
    outward = event == "socket.connect" and args[1][0] not in ("127.0.0.1", "::1")
    if outward or event == "socket.getaddrinfo" and args[0] not in ("127.0.0.1", "localhost"):
        raise RuntimeError(f"the network was asked for: {{args}}")
sys.addaudithook(refuse)
"""
"""What the installed server runs under: it must be the installed one, without extras, and it must not call anybody."""

MAIN = """
from tutelage.commands.line import main
words = " ".join(sys.argv[1:]).split(" , ")
sys.exit(next(filter(None, (main(command.split()) for command in words)), 0))
"""
"""Runs the commands that commas separate, until one fails."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without the network."""
    pytest.importorskip("hatchling", reason="building a wheel takes hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tutelage").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    pages = {
        f"tutelage/{path.relative_to(ROOT)}"
        for path in (ROOT / "docs").rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and ROOT / "docs" / "site" not in path.parents
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("tutelage/")}
    assert packed == here | pages
    needed = {"templates/rate.html", "templates/owner/overview.html", "static/rate.js", "static/rate.css"}
    assert {f"tutelage/people/web/{name}" for name in needed} <= packed


@pytest.mark.long
def test_what_is_installed_from_the_wheel_serves_its_pages(wheel: Path, tmp_path: Path) -> None:
    """A wheel of pure Python is installed by unpacking it; its dependencies are the ones that are here."""
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    absent = (ROOT / "tests" / "absent.py").read_text(encoding="utf-8")
    names = [name for extra in EXTRAS for name in extra.modules]
    guard = GUARD.format(absent=absent, names=names, installed=str(installed))
    (installed / "stranger.py").write_text(guard + MAIN)
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    study, votes = tmp_path / "study", tmp_path / "votes.csv"
    votes.write_text("rater,item,choice\n" + "".join(f"r{n % 3},i{n // 3},{n % 2}\n" for n in range(24)))
    commands = f"collect init {study} --from-pairs {pairs} , collect export {study} --out {tmp_path / 'exported'}"
    made = subprocess.run(
        [sys.executable, "-m", "stranger", *commands.split(), ",", "raters", str(votes)],
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "3 raters" in made.stdout
    assert (tmp_path / "exported" / "manifest.json").is_file()
    with serving(study, module="stranger", folder=installed) as (_, url, told):
        link = re.findall(r"owner's link +(\S+)", told)[0]
        with httpx.Client(timeout=60, follow_redirects=True) as client:
            assert client.post(link, headers={"origin": url}).url.path == "/owner"
            for path in (
                "",
                "/raters",
                "/items?by=added",
                "/models",
                "/invitations",
                "/settings",
                "/history",
                "/export",
            ):
                page = client.get(f"{url}/owner{path}")
                assert page.status_code == 200, path
                assert "</html>" in page.text
            page = client.get(f"{url}/rate").text
            for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
                assert client.get(f"{url}{file}").status_code == 200, file
