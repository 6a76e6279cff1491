"""Comparison of the chat templates in a run: the policy, its initial model, and the reward models.

Models that share a vocabulary but format or end completions differently would work on inputs they were not trained on.
Templates are read from tokenizer files, without torch or transformers; models outside local folders are not compared.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tutelage.base.config.mapping import flat
from tutelage.report.json_files import Object, items, objects, read_object, section, settings_in, string

CONFIG = "tokenizer_config.json"
ANSWER = "Water that falls from clouds."
ASKED = ({"role": "user", "content": "What is rain?"},)
PROMPTS = (
    ASKED,
    (*ASKED, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And snow?"}),
    ({"role": "system", "content": "Be brief."}, *ASKED),
)
"""Conversations that chat templates are compared on."""
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""Template markers for loss masks, which do not affect the rendered text."""


@dataclass(frozen=True)
class ChatForm:
    """The chat format of a tokenizer: its chat template (None without one), the special tokens that templates may use,
    and its end token."""

    template: str | None
    special: Mapping[str, str]

    @property
    def end(self) -> str:
        return self.special.get("eos_token", "")

    def prompts(self) -> tuple[str | None, ...]:
        """`PROMPTS` as rendered; None for those that the template refuses."""
        return tuple(self._written(messages, asks=True) for messages in PROMPTS)

    def after_answer(self) -> str:
        """The text that the template adds after a completion, or the end token."""
        whole = self._written((*ASKED, {"role": "assistant", "content": ANSWER}), asks=False)
        return self.end if self.template is None or whole is None else whole.rpartition(ANSWER)[2].strip()

    def _written(self, messages: tuple[Mapping[str, str], ...], *, asks: bool) -> str | None:
        if self.template is None:
            return ""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: form}
        names = {"messages": messages, "add_generation_prompt": asks, "enable_thinking": False}
        try:
            template = environment.from_string(_GENERATION.sub("", self.template))
            return template.render(**self.special, **names)
        except Exception:  # templates are third-party code and may raise anything
            return None


def _refuse(message: str) -> None:
    raise TemplateError(message)


def mismatches(folder: Path, config: Object) -> tuple[str, ...]:
    """Messages about models of the run in `folder` with different chat formats: the initial model against the trained
    model and its source, and the reward models against the policy. `config` is the run's config.json."""
    trained = _model_of(config)
    if trained is None:
        return ()
    sentences = list(_differences(folder / "model", trained, "from which it was trained"))
    source = _model_of(read_object(trained.parent / "config.json")[0])
    if source is not None:
        sentences += _differences(trained, source, "from which it was trained")
    for name in items(settings_in(config), "reward"):
        reward = Path(str(name).partition("=")[0])
        differences = tuple(_differences(trained, reward, "the reward model"))
        if differences and len(_vocabulary(trained) ^ _vocabulary(reward)) <= 1:  # otherwise it retokenises the text
            sentences += differences
    return tuple(sentences)


def _model_of(config: Object) -> Path | None:
    """The model in the settings of a run."""
    path = flat(settings_in(config)).get("model.path")
    return Path(path) if isinstance(path, str) and path else None


def read_form(folder: Path) -> ChatForm | None:
    """The chat format of the tokenizer in a folder; None without a tokenizer."""
    config, _ = read_object(folder / CONFIG)
    if not config:
        return None
    special = {name: _token(value) for name, value in config.items() if name.endswith("_token")}
    try:
        template: object = (folder / "chat_template.jinja").read_text(encoding="utf-8", errors="replace")
    except OSError:
        template = config.get("chat_template")
    return ChatForm(template if isinstance(template, str) else None, special)


def _token(value: object) -> str:
    """The text of a special token, which older files store as an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _vocabulary(folder: Path) -> set[tuple[str, object]]:
    """The tokens of a tokenizer with their ids."""
    content, _ = read_object(folder / "tokenizer.json")
    model = section(content, "model")
    pieces = {str(piece): place for place, piece in enumerate(items(model, "vocab"))}
    added = [(string(each, "content"), each.get("id")) for each in objects(content, "added_tokens")]
    return {*(section(model, "vocab") or pieces).items(), *added}


def _differences(folder: Path, other_folder: Path, role: str) -> Iterator[str]:
    """Messages about differences in chat format between two folders; none if either has no tokenizer."""
    one, other = read_form(folder), read_form(other_folder)
    if one is None or other is None:
        return
    name, against = f"{folder}", f"{other_folder}, {role}"
    pairs = zip(one.prompts(), other.prompts(), strict=True)
    differing = next(((a, b) for a, b in pairs if a is not None and b is not None and a != b), None)
    lead = f"The chat template of {name} is not that of {against}: "
    if (one.template is None) != (other.template is None):
        yield lead + f"{folder if one.template is None else other_folder} has none."
    elif differing is not None:
        yield lead + f"one writes {_short(differing[0])}, the other {_short(differing[1])}."
    ends = one.after_answer(), other.after_answer()
    if not (all(ends) and (ends[0].startswith(ends[1]) or ends[1].startswith(ends[0]))) and ends[0] != ends[1]:
        yield f"Completions of {name} end with {_short(ends[0])}, those of {against} with {_short(ends[1])}."
    elif one.end != other.end:
        yield f"The end token of {name} is {_short(one.end)}, that of {against} {_short(other.end)}."


def _short(text: str) -> str:
    return json.dumps(text[:80], ensure_ascii=False)
