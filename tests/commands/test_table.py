"""The table of commands: every example in a help can be run as it stands, as far as its flags go."""

import shlex

from offenders import for_each

from tutelage.base.config.flags import settings_from
from tutelage.commands import line
from tutelage.commands.table import COMMANDS, find

EXAMPLES = [(command.name, example) for command in COMMANDS for example in command.examples]


@for_each(EXAMPLES)
def test_an_example_has_flags_that_exist_and_all_that_are_required(name, example, tmp_path, monkeypatch):
    (tmp_path / "runs/sft").mkdir(parents=True)
    (tmp_path / "runs/sft/config.json").write_text(
        '{"format": "tutelage-run/1", "settings": {"model": {"path": "m"}, "data": "d", "out": "o"}}'
    )
    monkeypatch.chdir(tmp_path)
    command, words = find(name), shlex.split(example)
    subcommands = command.subcommands
    settings = subcommands[words.pop(0)] if subcommands else line.settings_of(command, words)
    assert isinstance(settings_from(settings, words, prog=name), settings)


def test_every_command_has_an_example():
    assert [command.name for command in COMMANDS if not command.examples] == []


def test_the_help_of_a_command_has_its_own_examples():
    assert line.examples("collect", "serve") == "examples:\n  tutelage collect serve runs/study"
    assert line.examples("collect", "forget") == ""
    assert line.examples("recipes") == "examples:\n  tutelage recipes\n  tutelage recipes --about grpo"
