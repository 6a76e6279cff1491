"""Optional dependencies: the libraries that `pip install 'tutelage[NAME]'` installs, and the error for a missing one.

`pip install tutelage` installs the torch-free parts: the command line, data files, statistics, reports and the
application for raters. Modules of an extra are imported where they are needed, and the first failing import names the
extra to install.
"""

from typing import NamedTuple

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence


class Extra(NamedTuple):
    """An optional dependency group: its modules, the first of which represents all, and their use."""

    name: str
    modules: tuple[str, ...]
    use: str
    size: str = ""
    """Note on the size of the download, as a sentence; empty if small."""


EXTRAS = (
    Extra(
        "train",
        ("torch", "transformers", "peft", "safetensors", "jaxtyping", "tokenizers", "rouge_score", "huggingface_hub"),
        "training, sampling, evaluating and serving models",
        "Its download is about 3 GB on Linux, where PyPI has torch for CUDA, and 200 MB with torch for CPUs.",
    ),
    Extra("data", ("datasets", "pyarrow"), "Parquet files and data sets by hub name"),
    Extra("gguf", ("gguf",), "models in .gguf files"),
    Extra("postgres", ("psycopg",), "studies in PostgreSQL"),
    Extra("personal", ("phonenumbers", "stdnum"), "finding personal data in what people wrote"),
    Extra("oidc", ("authlib", "joserfc"), "signing in at an OpenID provider"),
    Extra("rules", ("math_verify", "jsonschema"), "rewards such as rule:math"),
    Extra("verifiers", ("verifiers",), "--environment verifiers:NAME"),
    Extra("openenv", ("openenv",), "--environment openenv:ADDRESS"),
    Extra("lm-eval", ("lm_eval",), "evaluate --tasks"),
    Extra("wandb", ("wandb",), "--trackers wandb"),
    Extra("tensorboard", ("tensorboard",), "--trackers tensorboard"),
    Extra("trackio", ("trackio",), "--trackers trackio"),
    Extra("mlflow", ("mlflow",), "--trackers mlflow"),
)


class MissingExtra(TutelageError):
    """A library of an extra is not installed."""

    page = "installation"


def missing(error: ModuleNotFoundError, subject: str) -> MissingExtra | None:
    """Return the error for a `subject` ("improve", "A Parquet file") that needs a module which is not installed.

    None if the module belongs to no extra: its absence is a bug.
    """
    module = (error.name or "").partition(".")[0]
    for extra in EXTRAS:
        if module in extra.modules:
            text = Sentence(
                "%(subject)s needs the library %(module)s, which is not installed here: %(command)s.",
                subject=subject,
                module=module,
                command=f"pip install 'tutelage[{extra.name}]'",
            )
            return MissingExtra(f"{text} {extra.size}" if extra.size else text)
    return None
