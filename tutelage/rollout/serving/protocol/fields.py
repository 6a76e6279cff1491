"""Reads the fields of a JSON body, each with its type and its bounds, and refuses those that nobody has read."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from tutelage.rollout.serving.protocol.errors import RequestError

IGNORED = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "priority", "cache_salt",
    "skip_special_tokens", "spaces_between_special_tokens", "detokenize", "output_mode", "parallel_tool_calls",
    "tool_choice",
})  # fmt: skip
"""Fields that change no token, or nothing without another field that is refused."""

WITHOUT_EFFECT: Mapping[str, Sequence[Any]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,), "logit_bias": ({},),
    "suffix": ("",), "tools": ([],), "functions": ([],), "response_format": ({"type": "text"},), "min_tokens": (0,),
    "include_stop_str_in_output": (False,), "length_penalty": (1,), "use_beam_search": (False,),
    "truncate_prompt_tokens": (), "prompt_logprobs": (), "bad_words": ([],), "continue_final_message": (False,),
    "add_generation_prompt": (True,), "modalities": (["text"],), "audio": (), "prediction": (),
    "reasoning_effort": (), "chat_template": (), "chat_template_kwargs": ({},), "documents": (), "features": (),
    "kv_transfer_params": (),
}  # fmt: skip
"""Fields that are not supported, with the values (beside null) that ask for nothing."""


class Fields:
    """The fields of a body, or of a section of it called `section`. `done` is called when all were read."""

    def __init__(self, body: object, section: str = "") -> None:
        self.prefix = f"{section}." if section else ""
        if not isinstance(body, dict):
            raise RequestError(f"{section or 'The body'} must be a JSON object.", param=section or None)
        self._left: dict[str, Any] = dict(body)
        self._read: set[str] = set()

    def any(self, name: str) -> Any:
        """A value of any type; None where it is absent or null."""
        self._read.add(name)
        return self._left.pop(name, None)

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number within bounds."""
        value = self.any(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.refusal(name, f"must be a number from {least:g} to {most:g}, not {_short(value)}")
        return float(value)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number within bounds; None where it is absent."""
        value = self.any(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refusal(name, f"must be a whole number from {least} to {most}, not {_short(value)}")
        return value

    def flag(self, name: str) -> bool:
        """A boolean, false where it is absent."""
        value = self.any(name)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(name, f"must be true or false, not {_short(value)}")
        return bool(value)

    def text(self, name: str) -> str:
        """A text, empty where it is absent."""
        value = self.any(name)
        if value is not None and not isinstance(value, str):
            raise self.refusal(name, f"must be a text, not {_short(value)}")
        return value or ""

    def texts(self, name: str) -> tuple[str, ...]:
        """A text or a list of texts."""
        value = self.any(name)
        items = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.refusal(name, f"must be a text or a list of texts, not {_short(value)}")
        return tuple(items)

    def ids(self, name: str, vocabulary: int) -> tuple[int, ...]:
        """A list of token ids."""
        value = self.any(name)
        return self.as_ids(name, [] if value is None else value, vocabulary)

    def as_ids(self, name: str, value: object, vocabulary: int) -> tuple[int, ...]:
        """A value as token ids."""
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self.refusal(name, f"must be a list of token ids, not {_short(value)}")
        wrong = next((item for item in value if not 0 <= item < vocabulary), None)
        if wrong is not None:
            raise self.refusal(
                name, f"has the token {wrong}, but the model has the tokens 0 to {vocabulary - 1}"
            )
        return tuple(value)

    def refusal(self, name: str, reason: str) -> RequestError:
        """The error that a field gets."""
        return RequestError(f"{self.prefix}{name} {reason}.", param=self.prefix + name)

    def done(self) -> None:
        """Raise RequestError for a field that was not read and is not known to change nothing."""
        for name, value in self._left.items():
            if value is None or name in IGNORED:
                continue
            if name not in WITHOUT_EFFECT:
                near = difflib.get_close_matches(name, self._read, n=1)
                guess = f"; did you mean {near[0]!r}?" if near else "."
                raise RequestError(f"Unknown field {self.prefix}{name!r}{guess}", param=self.prefix + name)
            if value not in WITHOUT_EFFECT[name]:
                raise self.refusal(name, f"is not supported here: leave it out (it is {_short(value)})")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
