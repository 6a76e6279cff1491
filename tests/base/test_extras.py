"""The extras: what the package does without them, and what it says where one is missing."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tutelage
from tutelage.base import extras
from tutelage.base.extras import EXTRAS
from tutelage.commands import line as cli
from tutelage.commands import table

PACKAGE = Path(tutelage.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECLARED = PROJECT["optional-dependencies"]
TRAIN = [module for extra in EXTRAS if extra.name in ("train", "data") for module in extra.modules]
UNIX = ("fcntl", "resource", "termios", "pwd", "grp", "pty")
"""Modules of the standard library that Windows has not."""

BARE = """
import contextlib, io, json, select, sys
{absent}
hide(*{names!r})
del select.poll
from tutelage.commands import line as cli
from tutelage.commands import table
said = {{}}
for words in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(words)
        except SystemExit as stop:
            status = stop.code or 0
    said[" ".join(words)] = [status, out.getvalue(), err.getvalue()]
json.dump(said, sys.stdout)
"""
NEEDING = {
    "recipes": "",
    "pretrain": "--data d --out o",
    "sft": "--model m --data d --out o",
    "reward": "--model m --data d --out o",
    "improve": "--model m --prompts p --reward r --out o",
    "dpo": "--model m --data d --out o",
    "rejection": "--model m --prompts p --reward r --out o",
    "export": "--to verl --model m --prompts p --reward r --out o",
    "plan": "sft --model m --data d --out o",
    "sample": "--model m --prompts p --out o",
    "evaluate": "--model m --prompts p --out o",
    "lab": "kl --out o",
    "chat": "--model m",
    "serve": "--model m",
    "iterate": "s --policy p --prompts q",
    "demo": "--out o",
}
"""Commands that need the extra `train`, with flags that bring them to that point."""
COMMANDS = [
    [],
    ["--help"],
    ["doctor", "--json"],
    ["raters", "votes.csv"],
    ["raters", "votes.parquet"],
    ["collect", "init", "study", "--from-pairs", "pairs.jsonl"],
    ["collect", "status", "study"],
    ["doctor", "study", "--json"],
    *([command, *words.split()] for command, words in NEEDING.items()),
    *([command.name, "--help"] for command in table.COMMANDS),
]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """What commands print, with their statuses, where no extra is installed and the system is not Unix."""
    folder = tmp_path_factory.mktemp("bare")
    votes = "".join(f"r{rater},i{item},{(rater * item) % 2}\n" for rater in range(3) for item in range(8))
    (folder / "votes.csv").write_text("rater,item,choice\n" + votes)
    (folder / "votes.parquet").write_bytes(b"PAR1")
    (folder / "pairs.jsonl").write_text('{"prompt": "p", "chosen": "c", "rejected": "r"}\n')
    given = {path.name for path in folder.iterdir()}
    names = (*(module for extra in EXTRAS for module in extra.modules), *UNIX)
    absent = (Path(__file__).parents[1] / "absent.py").read_text()
    code = BARE.format(absent=absent, names=names, commands=COMMANDS)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} == given | {"study"}  # nothing of a command that needs more
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", NEEDING)
def test_a_command_that_needs_torch_says_so_before_it_does_anything(bare, command):
    status, out, err = bare[" ".join([command, *NEEDING[command].split()])]
    assert (status, out) == (2, "")
    assert re.match(
        rf"error: tutelage {command} needs .*torch, which is not installed here: "
        r"pip install 'tutelage\[train\]'\. Its download is about 3 GB .* 200 MB .*\.\nSee .*installation.*\n$",
        err,
    ), err


def test_the_rest_runs_without(bare):
    refusals = {one.name: bare[f"{one.name} --help"] for one in table.COMMANDS}
    assert {name: found for name, found in refusals.items() if found[0] != 0} == {}
    status, out, _ = bare["raters votes.csv"]
    assert status == 0
    assert "3 raters" in out
    assert "1 new question" in "".join(bare["collect init study --from-pairs pairs.jsonl"][1:])
    assert bare["collect status study"][0] == 0
    status, _, err = bare["raters votes.parquet"]
    assert (status, "pip install 'tutelage[data]'" in err) == (2, True)


def test_the_greeting_begins_with_what_is_installed(bare, capsys):
    assert re.findall(r"^  (\S.*?)  ", bare[""][1], re.MULTILINE) == [
        "tutelage collect init --help",
        "tutelage raters --help",
        "pip install 'tutelage[train]'",
    ]
    assert cli.main([]) == 0
    first = re.findall(r"^  (\S.*?)  ", capsys.readouterr().out, re.MULTILINE)
    assert first == ["tutelage demo", "tutelage sft --help", "tutelage collect init --help"]


def test_doctor_tells_which_extras_are_missing(bare):
    checks = {check["subject"]: check for check in json.loads(bare["doctor --json"][1])["checks"]}
    for extra in EXTRAS:
        assert checks[f"extra {extra.name}"]["advice"] == f"pip install 'tutelage[{extra.name}]'"
    assert "engine" not in checks


def test_doctor_checks_a_study(bare):
    status, printed = bare["doctor study --json"][:2]
    assert status == 0
    assert {"database", "items", "inbox"} <= {check["subject"] for check in json.loads(printed)["checks"]}


def test_the_table_names_extras_that_exist():
    assert {extra.name for extra in EXTRAS} == set(DECLARED) - {"collect", "all", "dev", "docs"}
    sources = " ".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = {name for names in re.findall(r"tutelage\[([\w,]+)\]", sources) for name in names.split(",")}
    assert named - {"NAME"} <= set(DECLARED)


def test_neither_plain_nor_collect_brings_torch_or_tables():
    brought = [
        *PROJECT["dependencies"],
        *DECLARED["collect"],
        *DECLARED["postgres"],
        *DECLARED["personal"],
        *DECLARED["oidc"],
    ]
    distributions = {re.split(r"[\[>=<]", each)[0] for each in brought} - {"tutelage"}
    assert distributions & {name.replace("_", "-") for name in TRAIN} == set()
    assert DECLARED["collect"] == ["tutelage[postgres,personal,oidc]"]


def test_the_api_says_what_is_missing(monkeypatch):
    def lacking(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(tutelage.importlib, "import_module", lacking)
    with pytest.raises(extras.MissingExtra, match=r"tutelage\.sft needs .*torch.*tutelage\[train\]"):
        _ = tutelage.sft


def test_a_module_of_no_extra_is_a_defect():
    assert extras.missing(ModuleNotFoundError(name="tutelage.nothing"), "x") is None
    assert extras.missing(ModuleNotFoundError("no name"), "x") is None


def test_no_module_of_the_package_needs_unix_to_be_imported():
    at_the_top = re.compile(rf"^(?:import|from) (?:{'|'.join(UNIX)})\b", re.MULTILINE)
    found = [path for path in PACKAGE.rglob("*.py") if at_the_top.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_a_run_is_refused_where_there_are_no_file_locks(tmp_path, monkeypatch):
    from tutelage.base.errors import TutelageError
    from tutelage.train.run.folder import _lock

    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(TutelageError, match="WSL"):
        _lock(tmp_path / "run")
    assert not (tmp_path / "run").exists()
