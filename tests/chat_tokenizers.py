"""Tokenizers for the tests of chat templates and of tokens: real ones, trained here on a few sentences, byte-level as
GPT-2's, the same with a start token as Llama 3's, and one that turns spaces into a mark before every text as Llama 2's;
with templates that differ in what they write around a turn."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tutelage.data.records import Message, Messages, ToolCall

SPECIAL = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]
SENTENCES = ["User: What is rain?", "Assistant: Rain is water that falls from clouds.", "System: Be brief."] * 4
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMED = CHATML.replace("m.content", "m.content | trim")
START = "{{ bos_token }}" + CHATML
INST = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"
)
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
LINES = (
    "{% for m in messages %}# {{ m.role }}\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}# assistant\n{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "trimmed": TRIMMED, "start": START, "inst": INST, "thinking": THINKING, "lines": LINES}


def byte_level(template: str | None = None, *, start: bool = False, **special: str | None) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    if start:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return wrap(backend, template, **special)


def metaspace(template: str | None = None) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    alphabet = list("aAz.,?\né日<|>/")
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(SENTENCES, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return wrap(backend, template)


def wrap(backend: Tokenizer, template: str | None, **special: str | None) -> PreTrainedTokenizerFast:
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"} | special
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template, **names)


PLAIN, STARTED, MARKED = byte_level(), byte_level(start=True), metaspace()
S, END, PAD, IM_START, IM_END = range(5)
TALK: Messages = (
    Message("system", "Be brief."),
    Message("user", "What is rain?"),
    Message("assistant", "Water."),
    Message("user", "And snow?"),
)
WITHOUT_TEMPLATE = {"plain": PLAIN, "started": STARTED, "marked": MARKED}
WITH_TEMPLATE = {name: byte_level(template) for name, template in TEMPLATES.items()}
ALL = WITHOUT_TEMPLATE | WITH_TEMPLATE
FORCED = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
DROPS = FORCED.replace("m.content", "m.content.split('</think>')[-1]")
TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>"
    "{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OFFER = '{"type": "function", "function": {"name": "weather", "description": "ends at <|im_end|>"}}'
QUESTION = Message("user", "Rain?", tools=(OFFER,))
CALL = Message("assistant", "I look.", calls=(ToolCall("weather", '{"city": "<|im_end|>"}'),))
RESULT = Message("tool", "22 <|im_end|>", name="weather")
