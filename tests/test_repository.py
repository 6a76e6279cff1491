"""What lies around the package agrees with it: workflows, metadata, versions, links between pages."""

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from docs.links import dead_links
from offenders import for_each

import tutelage
from bench.thresholds import compare

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


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
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


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_pin_actions_and_keep_no_credentials(file):
    """A tag can be moved to other code, a commit cannot; and no later step finds the token of the checkout."""
    text = file.read_text(encoding="utf-8")
    used = re.findall(r"uses: ([^./\s]\S*.*)", text)
    assert [line for line in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    jobs = yaml.safe_load(text)["jobs"].values()
    steps = [step for job in jobs for step in job.get("steps", []) if "checkout@" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in steps)


def test_the_description_of_the_package_has_no_relative_links(monkeypatch):
    """PyPI shows the README without the repository around it."""
    pytest.importorskip("hatchling", reason="the hook is one of hatchling's")
    monkeypatch.syspath_prepend(ROOT)
    from hatch_build import with_addresses

    sys.modules.pop("hatch_build")
    text = with_addresses((ROOT / "README.md").read_text(encoding="utf-8"), "v1")
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", text) == []
    raw, page = (
        "https://raw.githubusercontent.com/tutelage/tutelage/v1",
        "https://github.com/tutelage/tutelage/blob/v1",
    )
    assert with_addresses("[![a](b.svg)](c.md#d) ![e](f.png) [g](#h) [i](https://j)", "v1") == (
        f"[![a]({raw}/b.svg)]({page}/c.md#d) ![e]({raw}/f.png) [g](#h) [i](https://j)"
    )


def test_the_badges_say_what_the_metadata_says():
    project = toml("pyproject.toml")["project"]
    badges = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n\n")[2].partition("\n\n")[0]
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert f"badge/Python-{claimed[0]}_to_{claimed[-1]}-" in badges
    assert f"badge/licence-{project['license'].replace('-', '--')}-" in badges
    workflows = re.findall(r"actions/workflows/([\w.]+)", badges)
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


@pytest.mark.parametrize(
    ("ours", "memory", "too_much"),
    [
        ([1.0, 1.0, 9.0], 100.0, []),  # one slow step is no slow job
        ([1.17] * 3, 100.0, []),
        ([1.18] * 3, 100.0, ["times as fast as the peer"]),  # a ratio of 10 / 1.18 is 15.3 % less than 10
        ([0.5] * 3, 101.9, []),
        ([0.5] * 3, 102.1, ["MiB at most"]),
    ],
)
def test_the_bench_refuses_what_is_slower_or_larger(tmp_path, ours, memory, too_much):
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
