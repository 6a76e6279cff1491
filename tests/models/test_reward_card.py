"""A reward model's folder is read the same by those who know nothing of Tutelage: its chat template, its card."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from offenders import for_each
from transformers import AutoTokenizer

from tutelage.base import config
from tutelage.data.chat_tokens import encode
from tutelage.data.records import Message
from tutelage.models.heads import ScalarModel, load_reward_model, new_reward_model
from tutelage.models.reward_card import ANSWER, EXAMPLES, QUESTION, with_fitting_template
from tutelage.models.step_scores import encode_steps, step_rows
from tutelage.rewards.model_reward import ModelReward
from tutelage.rewards.reward import Completion

LLAMA_2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' ~ m['content'] ~ ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ ' ' ~ m['content'] ~ ' ' ~ eos_token }}"
    "{% else %}{{ raise_exception('no system') }}{% endif %}{% endfor %}"
)
WITH_TEXT_AFTER = tiny.CHATML.replace(
    "{% if add", "{% if not add_generation_prompt %}(over)<|end|>{% endif %}{% if add"
)


def speaking(template: str) -> Any:
    tokenizer = tiny.tokenizer(chat=True)
    tokenizer.chat_template = template
    return tokenizer


def written(tokenizer: Any, *turns: Message) -> list[int]:
    """The tokens that the chat template writes for a whole conversation."""
    conversation = [{"role": turn.role, "content": turn.content} for turn in turns]
    ids: list[int] = tokenizer.apply_chat_template(conversation, tokenize=True, return_dict=False)
    return ids


@for_each([tiny.CHATML, tiny.CHATML + "\n", WITH_TEXT_AFTER, LLAMA_2])
def test_the_template_of_the_folder_writes_what_training_reads(template: str, tmp_path: Path) -> None:
    """And prompts, earlier turns and conversations that end with a question as before."""
    own = speaking(template)
    fitting = with_fitting_template(own)
    assert fitting is not None
    fitting.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for messages in EXAMPLES if template != LLAMA_2 else EXAMPLES[:2]:
        *asked, answer = messages
        prompt, response = encode(tuple(asked), answer.content, own)
        assert written(loaded, *messages) == prompt + response
        assert encode(tuple(asked), answer.content, loaded) == (prompt, response)
        assert written(loaded, *asked) == written(own, *asked)
    assert own.chat_template == template, "the tokenizer that was given stays as it is"


def test_a_template_that_ends_there_stays_and_one_is_cut_once() -> None:
    own = speaking(LLAMA_2)
    assert with_fitting_template(own) is own
    cut = with_fitting_template(speaking(tiny.CHATML))
    assert with_fitting_template(cut) is cut
    assert with_fitting_template(speaking("{% set x %}\n" + tiny.CHATML + "{% endset %}{{ x }}")) is not None


def test_templates_that_cannot_be_cut_are_left() -> None:
    several = speaking(tiny.CHATML)
    several.chat_template = {"default": tiny.CHATML, "rag": tiny.CHATML}
    assert with_fitting_template(several) is None


def test_every_reader_gets_the_score_of_training(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    """The code on the card, for a model with a chat template and one without, whole and by LoRA."""
    for family, rank in (("qwen3", 0), ("qwen3", 2), ("llama", 0), ("gpt2", 0)):
        base = config.Model(tiny_model(family), device="cpu", engine="plain")
        model = new_reward_model(base, config.Lora(rank=rank), seed=0)
        stirred(model)
        folder = tmp_path / f"{family}-{rank}"
        model.save_whole(folder)
        theirs = score_by_card(folder)
        loaded = load_reward_model(config.Model(str(folder), device="cpu", engine="plain"))
        for each in (model, loaded):
            reward = ModelReward(each, same_tokens=False)
            ours = float(reward([Completion("p", (QUESTION,), ANSWER.content)])[0])
            assert theirs == pytest.approx(ours, abs=1e-5)


@pytest.mark.parametrize("separator", ["", " | "])
def test_every_reader_gets_the_probabilities_of_steps(
    tiny_model: Callable[..., str], tmp_path: Path, separator: str
) -> None:
    base = config.Model(tiny_model("qwen3"), device="cpu", engine="plain")
    model = new_reward_model(base, config.Lora(rank=2), seed=0)
    stirred(model)
    model.separator = separator
    model.save_whole(tmp_path)
    texts = ("Look up.", "It is 3.")
    steps = texts if separator else tuple((Message("assistant", text), QUESTION) for text in texts)
    encoded = encode_steps((QUESTION,), steps, separator, model.tokenizer)
    (row,), prompt = encoded.contexts, len(encoded.contexts[0].prompt)
    ends = [prompt + end - 1 for _, end in encoded.ends]
    theirs = by_card(tmp_path, ids=torch.tensor([[*row.prompt, *row.response]]), ends=ends)["good"]
    loaded = load_reward_model(config.Model(str(tmp_path), device="cpu", engine="plain"))
    assert loaded.separator == separator
    ours = loaded.values(step_rows([encoded], 0, loaded.device)).sigmoid()[0]
    torch.testing.assert_close(theirs, ours.detach(), rtol=0, atol=1e-5)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert (repr(separator).replace("'", '"') if separator else "<|im_end|>") in card


def test_a_model_of_another_program_is_read_where_its_template_ends_or_it_is_said(
    tiny_model: Callable[..., str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TRL trains on whole templates: ChatML's newline is the last token there."""
    base = config.Model(tiny_model("qwen3"), device="cpu", engine="plain")
    new_reward_model(base, config.Lora(), seed=0).save_whole(tmp_path)
    saved = config.Model(str(tmp_path), device="cpu", engine="plain")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    (tmp_path / "fingerprint.json").unlink()
    load_reward_model(saved)
    assert not caplog.records
    tokenizer.chat_template = tiny.CHATML
    tokenizer.save_pretrained(tmp_path)
    load_reward_model(saved)
    (warning,) = [record.message for record in caplog.records]
    assert "read at the token <|im_end|>, but its chat template does not end there" in warning


def test_the_card_of_a_model_with_several_templates(tiny_model: Callable[..., str], tmp_path: Path) -> None:
    base = config.Model(tiny_model("qwen3"), device="cpu", engine="plain")
    model = new_reward_model(base, config.Lora(), seed=0)
    template = model.tokenizer.chat_template
    ours = ModelReward(model, same_tokens=False)([Completion("p", (QUESTION,), ANSWER.content)])[0]
    model.tokenizer.chat_template = {"default": template, "rag": template}
    model.save_whole(tmp_path)
    assert score_by_card(tmp_path) == pytest.approx(float(ours), abs=1e-5)


def stirred(model: ScalarModel) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def score_by_card(folder: Path) -> float:
    """The score that the code on the card computes."""
    score: float = by_card(folder)["score"]
    return score


def by_card(folder: Path, **given: object) -> dict[str, Any]:
    """The names of the code on the card after it has run with the `given` ones."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert not re.search(r"\{\w+\}", card.replace("{code}", "")), "every place is filled"
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    found: dict[str, Any] = dict(given)
    exec(code.replace('"."', repr(str(folder))), found)
    return found
