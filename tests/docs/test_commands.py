"""Every command that a page or a help shows is one that the program takes: flags and values, by its own parser."""

import json
import re
from pathlib import Path

import pytest
from offenders import for_each

from docs.fences import INDENTED, PAGES, ROOT, SHOWN, Command, unknown_flags, words_of
from tutelage.base.config.mapping import to_mapping
from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli
from tutelage.engines.ranks import processes


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """Parse a command as `cli.main` would, without running it; a run that it would make leaves its config.json."""
    monkeypatch.chdir(tmp_path)

    def carry_out(command, given):
        if isinstance(out := getattr(given, "out", None), Path) and not out.is_absolute():
            out.mkdir(parents=True, exist_ok=True)
            (out / "config.json").write_text(
                json.dumps({"format": "tutelage-run/1", "settings": to_mapping(given)}), encoding="utf-8"
            )
        return 0

    monkeypatch.setattr(cli, "_carry_out", carry_out)
    monkeypatch.setattr(processes, "launch", lambda count, words: cli._dispatch(processes.processes_of(words)[1]))
    return lambda words: cli._dispatch(list(words))


def fault(parse, command: Command, capsys) -> str:
    """What the program says against a command; empty where it takes it."""
    try:
        status = parse(command.words)
    except TutelageError as error:
        return f"{command}\n  {error}"
    except SystemExit as stop:
        status = stop.code
    return f"{command}\n{capsys.readouterr().err}" if status else ""


def test_the_program_takes_every_command(parse, capsys, tmp_path, monkeypatch):
    faults = []
    for page in sorted({command.page for command in SHOWN}):
        (tmp_path / page).mkdir(parents=True)
        monkeypatch.chdir(tmp_path / page)  # a page finds the runs that it made, and no others
        faults += [fault(parse, command, capsys) for command in SHOWN if command.page == page]
    assert [found for found in faults if found] == []


def test_no_command_leaves_words_out():
    assert [str(command) for command in SHOWN if "..." in command.words or "…" in command.words] == []


def test_commands_stand_in_fenced_blocks():
    assert [(page.name, found) for page in PAGES for found in INDENTED.findall(without_fences(page))] == []


def without_fences(page) -> str:
    """The text of a page outside its fenced blocks."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)


@for_each(
    [
        "sft --model m --data d --out o --epoch 1",
        "sfft --model m",
        "improve --model m --prompts p --reward r --out o --steps x",
        "collect init s --from-pairs p --kind tripel",
        "sft --model m --data d --out o --lora.rank -1",
    ]
)
def test_a_page_with_a_command_that_is_wrong_would_fail(words, parse, capsys):
    assert fault(parse, Command("page.md", 1, tuple(words.split())), capsys)


def test_flags_within_sentences_are_flags_of_the_command():
    unknown = {page.name: unknown_flags(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {name: flags for name, flags in unknown.items() if flags} == {}
    assert unknown_flags("Run `tutelage sft --epoch 2`, then `tutelage sft --epochs 2`.") == [
        "tutelage sft --epoch 2: --epoch"
    ]


def test_commands_are_found_where_they_stand():
    assert words_of("$ tutelage sft --data 'a b'  # why") == ("sft", "--data", "a b")
    assert words_of("A=1 torchrun --nproc-per-node 2 -m tutelage improve --out o") == ("improve", "--out", "o")
    assert words_of("HEAD=n deploy/torchrun.sh sft --out o") == ("sft", "--out", "o")
    assert words_of("sbatch --nodes 4 deploy/slurm.sh sft --out o") == ("sft", "--out", "o")
    assert words_of("pip install tutelage") is None
    assert len(SHOWN) > 100
    assert (ROOT / "README.md") in PAGES
