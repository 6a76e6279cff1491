"""A policy learns to use its tools: what it does not know it has to look up, and what it cannot compute it has to ask.

    python examples/8_tools.py runs/tools

The task: what do 3 figs cost? Prices are only in the tool `price`, products only in the tool `times`, so a sure answer
takes three turns: two calls, and the number. Demonstrations show how, but seven in ten guess a number at once, and a
policy that imitates them does so too. GRPO on episodes, whose only reward is a right answer, changes that.
"""

import json
import sys
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import tutelage as tt

PRICES = {"figs": 2, "pears": 3, "plums": 4, "limes": 5, "nuts": 6, "kiwis": 7, "dates": 8, "beans": 9}
GUESSES = 0.7  # share of the demonstrations that guess
END, ROLES = "<|end|>", ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
TEMPLATE = (
    "{% if tools %}<|system|>{% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|end|>'
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def price(item: str) -> int:
    """Price of one piece.

    Args:
        item: What is bought.
    """
    return PRICES[item]


def times(a: int, b: int) -> int:
    """Product of two numbers.

    Args:
        a: A number.
        b: Another.
    """
    return a * b


async def shop(row, episode):  # type: ignore[no-untyped-def]
    """One purchase: calls are answered until a turn has none, which is the answer."""
    answer = await episode.chat()
    while answer.calls:
        answer = await episode.chat(*[await episode.run(call) for call in answer.calls])
    return float(answer.content == str(row["total"]))


def demonstration(count: int, item: str, dice: Random) -> dict[str, object]:
    """A conversation that looks up and multiplies, or guesses."""
    messages: list[dict[str, object]] = [{"role": "user", "content": f"{count} {item}"}]
    total = count * PRICES[item]
    if dice.random() < GUESSES:
        total = dice.randint(1, 9) * dice.randint(2, 9)
    else:
        calls = (("price", {"item": item}, PRICES[item]), ("times", {"a": count, "b": PRICES[item]}, total))
        for name, arguments, result in calls:
            call = {"type": "function", "function": {"name": name, "arguments": arguments}}
            messages += [{"role": "assistant", "content": "", "tool_calls": [call]}]
            messages += [{"role": "tool", "name": name, "content": str(result)}]
    messages.append({"role": "assistant", "content": str(total)})
    return {"messages": messages, "tools": [{"type": "function", "function": {"name": n}} for n in ("price", "times")]}


def new_model(texts: list[str], folder: Path) -> Path:
    """A small Llama with random weights, and a tokenizer with the template."""
    speech = Tokenizer(models.BPE())
    speech.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    speech.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[END, *ROLES], initial_alphabet=alphabet)
    speech.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=speech, eos_token=END, pad_token=END)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    shape = {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    shape |= {"tie_word_embeddings": True, "initializer_range": 0.07}
    settings = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=192, eos_token_id=0, **shape)
    LlamaForCausalLM(settings).save_pretrained(folder)
    return folder


def main(out: Path) -> tuple[float, float]:
    """Train in a folder; returns the share of right answers before and after."""
    out.mkdir(parents=True, exist_ok=True)
    dice = Random(0)
    questions = [(count, item) for count in range(2, 10) for item in PRICES]
    rows = [demonstration(*dice.choice(questions), dice) for _ in range(1500)]
    prompts = [{"prompt": f"{count} {item}", "total": count * PRICES[item]} for count, item in questions]
    model = new_model([json.dumps(row) for row in rows], out / "model")
    sft = tt.sft(model=model, data=rows, answers="every", out=out / "sft", epochs=8, optimiser={"lr": 3e-3})
    run = tt.improve(
        model=sft.model,
        prompts=prompts,
        environment=shop,
        tools=[price, times],
        turns=4,
        recipe="grpo",
        steps=30,
        batch_size=32,
        sampling={"temperature": 1.0, "max_new_tokens": 40},
        optimiser={"lr": 1e-3},
        out=out / "improve",
    )
    steps = [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]
    return steps[0]["score/mean"], steps[-1]["score/mean"]


if __name__ == "__main__":
    before, after = main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/tools"))
    print(f"right answers {before:.2f} before, {after:.2f} after")
