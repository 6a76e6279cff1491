"""The model card and chat template of a reward model, for use without Tutelage.

The score is computed at the last token, in training the end token of the completion. Many chat templates add text after
it (ChatML a newline), so that other programs would compute the score at a token never scored in training.
"""

import copy
import json
import logging
from pathlib import Path
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.data.chat_template import dated_template, has_template, render_prompt
from tutelage.data.chat_tokens import encode, end_token_ids
from tutelage.data.records import Message, Messages

log = logging.getLogger(__name__)

QUESTION, ANSWER = Message("user", "What is rain?"), Message("assistant", "Water that falls from clouds.")
EXAMPLES: tuple[Messages, ...] = (
    (QUESTION, ANSWER),
    (QUESTION, ANSWER, Message("user", "And snow?"), Message("assistant", "Frozen water.")),
    (Message("system", "Be brief."), QUESTION, ANSWER),
)
"""Conversations for comparing chat templates."""

CARD = """\
---
library_name: transformers
pipeline_tag: text-classification
tags: [reward-model]
---

# Reward model

A transformer with one output: the score of the last answer of a conversation, the higher the better. Trained by
Tutelage (`tutelage reward`). Scores are comparable between answers to the same prompt.

```python
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
{code}
with torch.no_grad():
    score = model(input_ids=inputs["input_ids"]).logits[0, 0].item()
```

## Where the input ends

The score is read at the last token of the input. It has to be `{end}` (id {id}), the token that ends the answer: the
model was trained to be read there and nowhere else. {template}
"""

STEP_CARD = """\
---
library_name: transformers
pipeline_tag: text-classification
tags: [process-reward-model]
---

# Process reward model

A transformer with one output: the log-odds that a step of a completion is good, read at the last token of the step.
Trained by Tutelage (`tutelage reward --steps`).

```python
import torch
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained(FOLDER)
with torch.no_grad():
    states = model.base_model(input_ids=ids).last_hidden_state
    good = model.score(states)[0, ends, 0].sigmoid()
```

`ends` are the places of the last tokens of the steps. {where} The model was trained to be read there and nowhere else.
"""

TEMPLATE_CODE = """\
conversation = [
    {"role": "user", "content": "What is rain?"},
    {"role": "assistant", "content": "Water that falls from clouds."},
]
inputs = tokenizer.apply_chat_template(conversation, return_dict=True, return_tensors="pt")"""

CUT_CODE = """\
conversation = [
    {"role": "user", "content": "What is rain?"},
    {"role": "assistant", "content": "Water that falls from clouds."},
]
text = tokenizer.apply_chat_template(conversation, tokenize=False)
text = text[: text.rindex(conversation[-1]["content"])] + conversation[-1]["content"] + END
inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")"""

PLAIN_CODE = """\
text = "User: What is rain?\\nAssistant: Water that falls from clouds." + tokenizer.eos_token
inputs = tokenizer(text, return_tensors="pt")"""


def write_card(folder: Path, tokenizer: Any, separator: str | None = None) -> None:
    """Write README.md and the tokenizer, with a chat template that ends at the scored token, to the folder of a reward
    model; README.md alone for a process reward model, whose steps of text end with the `separator`."""
    end_id = end_token_ids(tokenizer)[0]
    end = tokenizer.convert_ids_to_tokens(end_id)
    if separator is not None:
        where = f"A step is a message of the assistant, and ends with `{end}` (id {end_id})."
        if separator:
            where = f"A step is a text, tokenised by itself with {json.dumps(separator)} after it, the last one too."
        text = STEP_CARD.replace("{where}", where).replace("FOLDER", json.dumps("."))
        (folder / "README.md").write_text(text, encoding="utf-8")
        return
    if not has_template(tokenizer):
        code = PLAIN_CODE
        text = "There is no chat template: turns are lines that begin with `System:`, `User:` and `Assistant:`."
    elif (fitting := with_fitting_template(tokenizer)) is not None:
        fitting.save_pretrained(folder)
        code = TEMPLATE_CODE
        text = "The chat template in this folder ends there; that of another folder may write more, such as a newline."
    else:
        code = CUT_CODE.replace("END", json.dumps(end))
        text = "The chat template may write more after it, such as a newline, which has to be left off."
    card = CARD.replace("{code}", code).replace("{end}", end).replace("{id}", str(end_id))
    (folder / "README.md").write_text(
        card.replace("{template}", text).replace("FOLDER", json.dumps(".")), encoding="utf-8"
    )


def warn_of_template(tokenizer: Any, name: str) -> None:
    """Warn if the chat template of a reward model from another program does not end at the token scored here."""
    if has_template(tokenizer) and not _fits(tokenizer, tokenizer):
        end = tokenizer.convert_ids_to_tokens(end_token_ids(tokenizer)[0])
        log.warning(
            f"The scores of {name!r} are read at the token {end}, but its chat template does not end there. A program "
            "that trains on whole conversations, as TRL does, reads them at the end of the template: compare a few "
            "scores with that program's own, and use a model of `tutelage reward` where they differ."
        )


def with_fitting_template(tokenizer: Any) -> Any | None:
    """A tokenizer whose chat template is cut after the end token of the last completion; the tokenizer itself if its
    template already ends there.

    None if not possible, as with several templates in one tokenizer.
    """
    if _fits(tokenizer, tokenizer):
        return tokenizer
    if not isinstance(tokenizer.chat_template, str):
        return None
    cut = copy.copy(tokenizer)
    end = tokenizer.convert_ids_to_tokens(end_token_ids(tokenizer)[0])
    cut.chat_template = ending_template(tokenizer.chat_template, end)
    return cut if _fits(cut, tokenizer) else None


def ending_template(template: str, end: str) -> str:
    """A Jinja chat template equal to `template`, but without the text after the last `end` if the conversation ends
    with a completion and no generation prompt is requested."""
    return (
        f"{{% set conversation %}}{template.removesuffix(chr(10))}{{% endset %}}"
        "{% if messages and messages[-1]['role'] == 'assistant' and not add_generation_prompt %}"
        f"{{% set cut = conversation.rpartition({json.dumps(end, ensure_ascii=False)}) %}}{{{{ cut[0] ~ cut[1] }}}}"
        "{% else %}{{ conversation }}{% endif %}"
    )


def _fits(tokenizer: Any, original: Any) -> bool:
    """Whether the chat template of `tokenizer` gives the same prompts and the same tokens as `encode` with the
    original. Conversations that the original rejects are skipped."""
    for messages in EXAMPLES:
        *prompt_turns, answer = messages
        try:
            prompt, response = encode(tuple(prompt_turns), answer.content, original)
        except TutelageError:
            continue
        turns = [{"role": turn.role, "content": turn.content} for turn in messages]
        ids = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False, **dated_template(tokenizer))
        same_prompt = render_prompt(tuple(prompt_turns), tokenizer) == render_prompt(tuple(prompt_turns), original)
        if list(ids) != [*prompt, *response] or not same_prompt:
            return False
    return True
