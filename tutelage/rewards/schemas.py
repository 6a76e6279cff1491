"""Validation of JSON schemas in the worker of `sandbox`: schemas may contain regular expressions."""

import json
from functools import lru_cache
from typing import Any

import jsonschema

from tutelage.rewards.sandbox import limited, parsed_json


def check(schema: str) -> None:
    """Raise ValueError or jsonschema.SchemaError for an invalid JSON schema."""
    parsed = json.loads(schema)
    jsonschema.validators.validator_for(parsed).check_schema(parsed)


def fulfils(schema: str, text: str) -> bool:
    """Whether a text is JSON that satisfies the schema. Raises LimitExceeded."""
    return limited(_fulfils, schema, text)


def _fulfils(schema: str, text: str) -> bool:
    try:
        value = parsed_json(text)
    except ValueError:
        return False
    return bool(_validator(schema).is_valid(value))


@lru_cache(maxsize=8)
def _validator(schema: str) -> Any:
    parsed = json.loads(schema)
    return jsonschema.validators.validator_for(parsed)(parsed)
