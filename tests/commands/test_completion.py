"""Completion: the scripts know the flags that the help shows, and bash completes with them."""

import re
import shutil
import subprocess
import sys

import pytest

from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli
from tutelage.commands.completion import commands, script
from tutelage.commands.dpo.settings import LOSSES
from tutelage.commands.table import COMMANDS
from tutelage.core.preferences import PREFERENCE_LOSSES


@pytest.fixture(scope="module")
def known():
    return commands()


@pytest.mark.parametrize("words", ["improve", "collect init", "raters", "lab kl", "plan sft", "demo"])
def test_the_flags_are_those_of_the_help(known, words, capsys):
    with pytest.raises(SystemExit):
        cli.main([*words.split(), "--help"])
    shown = set(re.findall(r"^[│ ]*(?:-h, )?(--[a-z][\w.-]*)", capsys.readouterr().out, re.MULTILINE))
    names = {flag.names[0] for flag in known[tuple(words.split())]}
    assert shown <= names
    short = {"--model", "--dtype", "--device", "--engine"}
    assert names - shown <= short | {"--config", "--processes", "--seeds"}


def test_every_command_and_command_is_known(known):
    assert {command[0] for command in known} == {command.name for command in COMMANDS}
    assert ("collect", "payments") in known
    (sync,) = (flag for flag in known[("improve",)] if "--sync" in flag.names)
    assert sync.choices == ("auto", "lora", "disk", "nccl")
    (resume,) = (flag for flag in known[("improve",)] if "--resume" in flag.names)
    assert (resume.names, resume.takes_value) == (("--resume", "--no-resume"), False)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["imp"], "improve import"),
        (["collect", "in"], "init invite"),
        (["improve", "--syn"], "--sync --sync-folder"),
        (["improve", "--sync", ""], "auto lora disk nccl"),
        (["collect", "init", "--engine", "p"], "plain"),
        (["collect", "serve", "--answ"], ""),
        (["improve", "--out", ""], ""),
        (["improve", "--recipe", "gr"], "grpo"),
        (["distill", "--recipe", "reverse"], "reverse_kl"),
        (["improve", "--recipe", "=", "grp"], "grpo"),
        (["improve", "--sync", "="], "auto lora disk nccl"),
        (["docs", "howto/pr"], "howto/prolific howto/promote"),
        (["dpo", "--loss", "o"], "orpo"),
        (["export", "--to", ""], "verl openrlhf gguf"),
        (["collect", "init", "--kind", "r"], "ranking"),
        (["plan", "sft", "--gpu", "h1"], "h100"),
        (["completion", ""], "bash zsh fish"),
        (["sft", "--lora.ra"], "--lora.rank"),
    ],
)
def test_bash_completes(typed, offered, bash):
    assert bash(typed) == offered


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """`bash(words)`: what bash offers for the last of the words after `tutelage`, joined by blanks."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    file = tmp_path_factory.mktemp("completion") / "tutelage.bash"
    file.write_text(script(["bash"]))

    def offered(words):
        code = 'source "$1"; shift; COMP_WORDS=(tutelage "$@"); COMP_CWORD=$#; _tutelage; echo "${COMPREPLY[*]}"'
        done = subprocess.run(
            ["bash", "-c", code, "bash", str(file), *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    return offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_flag_and_value_is_in_every_script(known, shell):
    text = script([shell])
    for flags in known.values():
        for flag in flags:
            assert all(name.removeprefix("--") in text for name in flag.names)
            assert " ".join(flag.choices) in text


def test_the_losses_are_those_of_the_table():
    assert tuple(PREFERENCE_LOSSES) == LOSSES


def test_a_script_is_written_without_torch():
    imports = "import sys; from tutelage.commands.completion import script"
    code = f"{imports}; script(['bash']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"]])
def test_another_shell_is_refused(words):
    with pytest.raises(TutelageError, match="takes one of bash, zsh, fish"):
        script(words)
