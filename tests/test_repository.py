"""What lies around the package agrees with it: workflows, metadata, versions, links between pages."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from docs.links import dead_links
from offenders import for_each

import tutelage
from bench.thresholds import compare
from tutelage.base.version import REPOSITORY

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / ".github").rglob("*.md"),
    *(ROOT / "bench").glob("*.md"),
]


def toml(name):
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))


def pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.replace("_", "-").lower().split("==") for line in lines if "==" in line)


@for_each(PAGES, lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page):
    assert dead_links(page) == []


def test_every_page_of_the_documentation_is_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in readme] == []


@for_each(WORKFLOWS, lambda file: file.name)
def test_workflows_call_targets_scripts_and_workflows_that_exist(file):
    text = file.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}  # jobs that write say so themselves
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"run: make ([a-z-]+)", text)) <= targets
    named = re.findall(r"(?:python3? |uses: \./)([\w./-]+\.(?:py|yml))", text)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    own = [job for job in workflow["jobs"].values() if "uses" not in job]
    assert all("timeout-minutes" in job for job in own)


@for_each(WORKFLOWS, lambda file: file.name)
def test_workflows_pin_actions_and_keep_no_credentials(file):
    """A tag can be moved to other code, a commit cannot; and no later step finds the token of the checkout."""
    text = file.read_text(encoding="utf-8")
    used = re.findall(r"uses: ([^./\s]\S*.*)", text)
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    jobs = yaml.safe_load(text)["jobs"].values()
    steps = [step for job in jobs for step in job.get("steps", []) if "checkout@" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in steps)


ADDRESS = "https://github.com/owner/name"


@pytest.fixture
def with_addresses(monkeypatch):
    pytest.importorskip("hatchling", reason="the hook is one of hatchling's")
    monkeypatch.syspath_prepend(ROOT)
    from hatch_build import with_addresses

    yield with_addresses
    sys.modules.pop("hatch_build")


@pytest.mark.parametrize("repository", ["", ADDRESS])
def test_the_description_of_the_package_has_no_relative_links(with_addresses, repository):
    """PyPI shows the README without the repository around it."""
    text = with_addresses((ROOT / "README.md").read_text(encoding="utf-8"), repository, "v1")
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", text) == []


def test_relative_links_lead_to_the_tag_or_are_their_texts(with_addresses):
    text = "[![a](b.svg)](c.md#d) ![e](f.png) [g](#h) [i](https://j)"
    raw, page = "https://raw.githubusercontent.com/owner/name/v1", f"{ADDRESS}/blob/v1"
    assert with_addresses(text, ADDRESS, "v1") == (
        f"[![a]({raw}/b.svg)]({page}/c.md#d) ![e]({raw}/f.png) [g](#h) [i](https://j)"
    )
    assert with_addresses("![e](f.png) [k](l.md) [g](#h) [i](https://j)", "", "v1") == " k [g](#h) [i](https://j)"


WRITTEN = runpy.run_path(str(ROOT / "scripts" / "address.py"))["WRITTEN"]


@for_each(list(WRITTEN.items()))
def test_files_have_the_address_of_the_setting(name, written):
    """They are as `make pages` writes them, and lose nothing when the address is set and taken back."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert written(text, REPOSITORY) == text
    assert ADDRESS in written(text, ADDRESS)
    assert written(written(text, ADDRESS), REPOSITORY) == text


def test_no_other_file_has_an_address_of_the_repository():
    """One setting holds it: what else needs it is made from it."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = []
    for name in filter(None, files.split("\0")):
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        if re.search(rb"github\.(com|io)/tutelage|tutelage\.github\.io", content):
            named.append(name)
    assert set(named) <= ({*WRITTEN, "tutelage/base/version.py"} if REPOSITORY else set())


@pytest.mark.slow
def test_the_wheel_has_the_pages_and_builds_without_an_address(tmp_path):
    pytest.importorskip("hatchling")
    build = "print(*WheelBuilder('.').build(directory=sys.argv[1], versions=['standard']))"
    code = f"import sys; from hatchling.builders.wheel import WheelBuilder; {build}"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(done.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {f"tutelage/docs/{page}" for page in pages} <= names
    assert "tutelage/commands/line.py" in names
    assert [name for name in names if name.startswith("tutelage/docs/") and name.endswith(".py")] == []
    assert ("Project-URL" in metadata) == bool(REPOSITORY)


def test_the_results_of_the_readme_are_those_of_the_experiments():
    """docs/results.md is written from the experiments; a figure of the README stands there in the same words."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2].partition("\n## ")[0]
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    figures = re.findall(r"\d[\d.]*%? \([\d.]+%? to [\d.]+%?\)", section)
    assert len(figures) == 4
    assert [figure for figure in figures if figure not in results] == []
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in results.splitlines() if line.startswith("|")]
    for figure, seconds in re.findall(r"(\d[\d.]*%? \([^)]*\)) in (\d+)", section):
        assert any(figure in row and seconds in row for row in rows), figure
    names, scores = re.findall(r"by ((?:\w+ · )+\w+), three seeds \| ((?:[\d.]+ · )+[\d.]+)", section)[0]
    for name, score in zip(names.split(" · "), scores.split(" · "), strict=True):
        assert any(row[0].startswith(f"{name}, β") and row[1].startswith(f"{score} ") for row in rows), name
    length = re.findall(r"length alone: (\d+%)", section)[0]
    assert any(row[0].startswith("the longer completion") and row[1].startswith(length) for row in rows)


def test_the_badges_say_what_the_metadata_says():
    project = toml("pyproject.toml")["project"]
    badges = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n\n")[2].partition("\n\n")[0]
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert f"badge/Python-{claimed[0]}_to_{claimed[-1]}-" in badges
    assert f"badge/licence-{project['license'].replace('-', '--')}-" in badges
    workflows = re.findall(r"actions/workflows/([\w.]+)", WRITTEN["README.md"](badges, ADDRESS))
    assert set(workflows) <= {file.name for file in WORKFLOWS}


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == tutelage.__version__


def test_pre_commit_runs_the_tools_of_the_constraints():
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (ruff,) = (repo["rev"] for repo in repos if "ruff" in repo["repo"])
    assert ruff == f"v{pinned()['ruff']}"


def test_the_lock_has_the_versions_of_the_constraints():
    locked = {package["name"]: package["version"] for package in toml("pylock.toml")["packages"]}
    differing = {name: version for name, version in pinned().items() if locked.get(name) != version}
    assert differing == {}, "run make lock"


def test_the_lock_covers_what_the_project_needs():
    project = toml("pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    needs, left = set(), ["dev"]
    while left:
        for need in extras[left.pop()]:
            name, names = re.fullmatch(r"([\w-]+)(?:\[([\w,-]+)\])?.*", need).groups()
            left += names.split(",") if name == "tutelage" else []
            needs |= {name} - {"tutelage"}
    needs |= {re.split(r"[\[>=]", need)[0] for need in project["dependencies"]}
    assert needs <= {package["name"] for package in toml("pylock.toml")["packages"]}


RELEASE = runpy.run_path(str(ROOT / "scripts" / "release_notes.py"))["notes"]


@pytest.fixture
def released(tmp_path):
    """A checkout of version 1.2.0."""
    (tmp_path / "tutelage" / "base").mkdir(parents=True)
    (tmp_path / "tutelage" / "base" / "version.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-12-01\n\n### Added\n\n- This.\n\n## [1.1.0]\n\n- That.\n"
    )
    return tmp_path


def test_the_notes_of_a_release_are_its_section_of_the_changelog(released):
    assert RELEASE("v1.2.0", released) == "### Added\n\n- This."


def test_a_tag_that_is_not_the_version_is_refused(released):
    with pytest.raises(ValueError, match=r"tag is v1\.1\.0, but .* says 1\.2\.0"):
        RELEASE("v1.1.0", released)


def test_a_release_without_a_section_is_refused(released):
    (released / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n- This.\n\n## [1.2.0]\n\n## [1.1.0]\n\n- x\n"
    )
    with pytest.raises(ValueError, match=r"no section ## \[1\.2\.0\]"):
        RELEASE("v1.2.0", released)


def result(folder, name, theirs, ours, memory):
    """What the bench writes about a job, on a machine called `m`."""
    (folder / "m").mkdir(parents=True, exist_ok=True)
    sides = {"theirs": {"seconds": theirs}, "ours": {"seconds": ours, "peak_mb": memory}}
    (folder / "m" / f"{name}.json").write_text(json.dumps(sides))


@for_each(
    [
        ([1.0, 1.0, 9.0], 100.0, []),  # one slow step is no slow job
        ([1.17] * 3, 100.0, []),
        ([1.18] * 3, 100.0, ["times as fast as the peer"]),  # a ratio of 10 / 1.18 is 15.3 % less than 10
        ([0.5] * 3, 101.9, []),
        ([0.5] * 3, 102.1, ["MiB at most"]),
    ]
)
def test_the_bench_refuses_what_is_slower_or_larger(ours, memory, too_much, tmp_path):
    result(tmp_path / "old", "sft", [10.0] * 3, [1.0] * 3, 100.0)
    result(tmp_path / "new", "sft", [10.0] * 3, ours, memory)
    result(tmp_path / "new", "dpo", [10.0] * 3, [99.0] * 3, 999.0)  # nothing to compare it with
    found = list(compare(tmp_path / "old", tmp_path / "new"))
    assert [one.figure for one in found if one.is_too_much] == too_much
    assert {one.job for one in found} == {"m/sft"}


def test_python_versions_agree():
    """The oldest Python of the metadata, the tools and the workflows is one; every one that is claimed is tested."""
    project = toml("pyproject.toml")
    oldest = project["project"]["requires-python"].removeprefix(">=")
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["suite"]["strategy"]["matrix"]
    assert matrix["python"][0] == oldest
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(project["project"]["classifiers"]))
    assert claimed == matrix["python"]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in matrix["python"]


def test_no_entry_of_the_changelog_stands_there_twice():
    entries = re.findall(r"^- (.{40})", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(entries)) == sorted(entries)
