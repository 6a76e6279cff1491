"""Forms of conversation: those that write the same are the same, whatever their templates look like."""

import json

import pytest
import tiny
from offenders import for_each

from tutelage.models.reward_card import ending_template
from tutelage.report.chat_templates import mismatches, read_form

RUN = "runs/ppo"
HARMLESS = {
    "the same": tiny.CHATML,
    "a line break at the end": tiny.CHATML + "\n",
    "another name of a variable": tiny.CHATML.replace("m in", "each in").replace("m[", "each["),
    "marks of answers for training": "{% generation %}" + tiny.CHATML + "{%- endgeneration -%}",
    "a reward model's, cut at the end": ending_template(tiny.CHATML, "<|im_end|>"),
}


@pytest.fixture
def found(tmp_path):
    """`found(template, end)`: the sentences on a reward model whose tokenizer has these, beside a policy of ChatML."""

    def of(template, end="<|im_end|>", *, policy=tiny.CHATML, tokens=()):
        for name, written, ending in (("policy", policy, "<|im_end|>"), ("reward", template, end)):
            words = tiny.tokenizer(chat=True)
            words.chat_template, words.eos_token = written, ending
            words.add_tokens(list(tokens) if name == "reward" else [])
            words.save_pretrained(tmp_path / name)
        settings = {"model": {"path": str(tmp_path / "policy")}, "reward": [f"{tmp_path / 'reward'}=0.5", "rule:math"]}
        return mismatches(tmp_path / RUN, {"settings": settings})

    return of


@for_each(HARMLESS.values())
def test_templates_that_write_the_same_are_no_mismatch(template, found):
    assert found(template) == ()


def test_a_template_that_cannot_be_rendered_is_not_compared(found):
    assert found("{% for") == found("{{ 1 / 0 }}") == ()


def test_what_each_of_them_writes_is_told(found, tmp_path):
    (sentence,) = found(tiny.CHATML.replace("assistant\n", "model\n"))
    assert sentence.startswith(f"The chat template of {tmp_path / 'policy'} is not that of {tmp_path / 'reward'}")
    assert json.dumps("<|im_start|>user\nWhat is rain?<|im_end|>\n<|im_start|>model\n")[1:-1] in sentence


def test_a_missing_template_and_end_tokens_are_told(found):
    lacking, ending = found(None, tiny.END)
    assert lacking.endswith("reward has none.")
    assert json.dumps(tiny.END) in ending
    (sentence,) = found(tiny.CHATML, tiny.END)
    assert sentence.startswith("The end token of ")
    *_, sentence = found(tiny.CHATML.replace("<|im_end|>", tiny.END))
    assert sentence.startswith("Completions of ")


def test_a_reward_model_of_another_vocabulary_reads_texts_and_may_differ(found):
    assert found(None, tokens=["<|one|>", "<|two|>"]) == ()


def test_templates_inside_of_the_configuration_are_read(tmp_path):
    given = {"chat_template": tiny.CHATML, "eos_token": {"content": "<|im_end|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(given))
    form = read_form(tmp_path)
    assert (form.template, form.end, form.after_answer()) == (tiny.CHATML, "<|im_end|>", "<|im_end|>")


def test_a_run_without_a_model_of_this_machine_has_no_mismatch(tmp_path):
    assert mismatches(tmp_path, {"settings": {"model": {"path": "hub/name"}, "reward": ["module:name"]}}) == ()
    assert mismatches(tmp_path, {}) == ()
