"""The texts, tokenizers and models that both sides get, written once and used by every job."""

import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.job import Place
from bench.shapes import Shape
from bench.texts import Pair, generated

END, PAD = "<|end|>", "<|pad|>"
TEMPLATE = (
    "{% for m in messages %}{% if not loop.first %}\n{% endif %}"
    "{% if m.role == 'assistant' %}Assistant: {{ m.content }}" + END + "{% else %}User: {{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}\nAssistant:{% endif %}"
)
LEARNT_FROM = 12_000
"""Generated pairs that a tokenizer is learnt from, besides those of a file."""


def pairs(world: Path) -> Iterator[Pair]:
    """The preferences of this world: those of its file, then generated ones."""
    told = json.loads((world / "world.json").read_text())["data"]
    return itertools.chain(_of_file(told) if told else (), generated())


def _of_file(path: str) -> Iterator[Pair]:
    from tutelage.data.formats import load_preferences

    for record in load_preferences(path).records:
        turns = [{"role": turn.role, "content": turn.content} for turn in record.messages]
        yield turns, record.chosen, record.rejected


def ensure_model(place: Place) -> None:
    """Write the tokenizer and the random weights of the job's shape, unless they are there."""
    folder = Path(place.model)
    if (folder / "config.json").is_file():
        return
    import torch
    from transformers import LlamaForCausalLM

    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    tokenizer = tokenizer_of(place.shape, place.world)
    torch.manual_seed(place.seed)
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    LlamaForCausalLM(llama_config(place.shape, **ends)).save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    unfinished.rename(folder)


def llama_config(shape: Shape, **more: Any) -> Any:
    """The settings of a model of a shape."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        **more,
    )


def tokenizer_of(shape: Shape, world: Path, special: Sequence[str] = (END, PAD), template: str = TEMPLATE) -> Any:
    """A byte-level BPE learnt from the world's texts: of the shape's vocabulary, or as near as the texts allow. The
    first of the special tokens ends a turn, the second pads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.learnt or shape.vocabulary,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(_passages(world), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=special[0],
        pad_token=special[1],
        additional_special_tokens=list(special[2:]),
        chat_template=template,
        padding_side="left",
    )


def _passages(world: Path) -> Iterator[str]:
    for turns, chosen, rejected in itertools.islice(pairs(world), LEARNT_FROM):
        yield from (turn["content"] for turn in turns)
        yield chosen
        yield rejected


def write_rows(place: Place, rows: Sequence[dict[str, Any]], *, batch: int) -> None:
    """Write the rows for ours as they are, and for the peer in the order in which we read them, so that both take the
    same steps."""
    from tutelage.train.supervised.batches import Order

    order = Order(range(len(rows)), batch, place.seed)
    read = [rows[i] for step in range(order.steps_per_epoch) for i in order(step)]
    for name, lines in (("ours", rows), ("theirs", read)):
        write(place.job / f"{name}.jsonl", lines)


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Rows as lines of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def tokens_of(place: Place, turns: list[dict[str, str]], answer: str | None = None) -> tuple[int, int]:
    """How many tokens a prompt and the answer to it have."""
    from tutelage.data.chat_tokens import encode
    from tutelage.data.records import Message

    messages = tuple(Message(turn["role"], turn["content"]) for turn in turns)  # type: ignore[arg-type]
    prompt, response = encode(messages, answer, load_tokenizer(place))
    return len(prompt), len(response)


_loaded: dict[str, Any] = {}


def load_tokenizer(place: Place) -> Any:
    """The tokenizer of the job's model."""
    if place.model not in _loaded:
        from transformers import AutoTokenizer

        _loaded[place.model] = AutoTokenizer.from_pretrained(place.model)
    return _loaded[place.model]


def write_prompts(place: Place, count: int, shortest: int, longest: int, common: int = 0) -> list[int]:
    """Write `count` prompts of one question each, whose lengths in tokens are spread evenly between the two; returns
    the lengths. All begin with the same `common` tokens. Both sides read the same file."""
    chosen, lengths = [], []
    source = (pair[0][-1]["content"] for pair in pairs(place.world))
    tokenizer = load_tokenizer(place)
    opening = tokenizer.decode(_ids(tokenizer, source, "", common)[:common]).strip()
    for number in range(count):
        wanted = shortest + (longest - shortest) * number // max(1, count - 1)
        turns = next(filter(None, (_of_length(place, source, wanted, opening) for _ in range(200))))
        chosen.append({"prompt": turns})
        lengths.append(wanted)
    write(place.job / "prompts.jsonl", chosen)
    return lengths


def _of_length(place: Place, source: Iterator[str], wanted: int, opening: str) -> list[dict[str, str]] | None:
    """A question of exactly as many tokens as are wanted, where the text can be cut so."""
    tokenizer = load_tokenizer(place)
    ids = _ids(tokenizer, source, opening, wanted)
    for size in range(wanted - 12, wanted):
        turns = [{"role": "user", "content": tokenizer.decode(ids[:size]).strip()}]
        if tokens_of(place, turns)[0] == wanted:
            return turns
    return None


def _ids(tokenizer: Any, source: Iterator[str], opening: str, least: int) -> list[int]:
    """At least so many tokens of a text that begins with `opening`."""
    text = opening
    while len(ids := tokenizer(text)["input_ids"]) < least:
        text = f"{text} {next(source)}".strip()
    return list(ids)
