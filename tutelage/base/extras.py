"""The extras of the package: what `pip install 'tutelage[NAME]'` brings, and what to say where it is missing.

`pip install tutelage` brings what works without torch: the command line, files of data, statistics, reports and the
application for people. A module of an extra is imported where it is needed, and the first import that fails says which
extra to install.
"""

from typing import NamedTuple

from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence


class Extra(NamedTuple):
    """An extra: the modules that it brings, the first of which stands for all, and what they are for."""

    name: str
    modules: tuple[str, ...]
    use: str
    size: str = ""
    """What a user should know about the size of the download, as a sentence; empty where it is small."""


EXTRAS = (
    Extra(
        "train",
        (
            "torch",
            "transformers",
            "peft",
            "safetensors",
            "jaxtyping",
            "tokenizers",
            "rouge_score",
            "huggingface_hub",
        ),
        "training, sampling, evaluating and serving models",
        "Its download is about 3 GB on Linux, where PyPI has torch for CUDA, and 200 MB with torch for CPUs.",
    ),
    Extra("data", ("datasets", "pyarrow"), "Parquet files and data sets by hub name"),
    Extra("gguf", ("gguf",), "models in .gguf files"),
    Extra("postgres", ("psycopg",), "studies in PostgreSQL"),
    Extra("personal", ("phonenumbers", "stdnum"), "finding personal data in what people wrote"),
    Extra("oidc", ("authlib", "joserfc"), "signing in at an OpenID provider"),
    Extra("rules", ("math_verify", "jsonschema"), "rewards such as rule:math"),
    Extra("lm-eval", ("lm_eval",), "evaluate --tasks"),
    Extra("wandb", ("wandb",), "--trackers wandb"),
    Extra("tensorboard", ("tensorboard",), "--trackers tensorboard"),
    Extra("trackio", ("trackio",), "--trackers trackio"),
    Extra("mlflow", ("mlflow",), "--trackers mlflow"),
)


class MissingExtra(TutelageError):
    """A library that an extra brings is not installed."""

    page = "installation.md"


def missing(error: ModuleNotFoundError, subject: str) -> MissingExtra | None:
    """What to tell a user whose `subject` ("improve", "A Parquet file") needs a module that is not installed.

    None where the module belongs to no extra: its absence is a defect.
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
