"""The table of verbs: every example in a help can be run as it stands, as far as its flags go."""

import importlib
import shlex

import pytest

from tutelage import cli
from tutelage.cli.verbs import VERBS
from tutelage.config.flags import settings_from

EXAMPLES = [(verb.name, example) for verb in VERBS for example in verb.examples]


@pytest.mark.parametrize(("verb", "example"), EXAMPLES, ids=lambda text: text[:30])
def test_an_example_has_flags_that_exist_and_all_that_are_required(verb, example, tmp_path, monkeypatch):
    (tmp_path / "runs/sft").mkdir(parents=True)
    (tmp_path / "runs/sft/config.json").write_text(
        '{"format": "tutelage-run/1", "settings": {"model": {"path": "m"}, "data": "d", "out": "o"}}'
    )
    monkeypatch.chdir(tmp_path)
    module, words = importlib.import_module(f"tutelage.commands.{verb}"), shlex.split(example)
    commands = getattr(module, "COMMANDS", None)
    settings = cli.settings_of(module, words) if commands is None else commands[words.pop(0)]
    assert isinstance(settings_from(settings, words, prog=verb), settings)


def test_every_verb_has_an_example():
    assert [verb.name for verb in VERBS if not verb.examples] == []


def test_the_help_of_a_command_has_its_own_examples():
    assert cli.examples("collect", "serve") == "examples:\n  tutelage collect serve runs/study"
    assert cli.examples("collect", "forget") == ""
    assert cli.examples("recipes") == "examples:\n  tutelage recipes\n  tutelage recipes --about grpo"
