"""The teacher of distillation: a model in this process, or a server."""

import os
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.commands.distill.settings import DistillSettings
from tutelage.commands.layout import lay_out_beside
from tutelage.core.batch import Rows
from tutelage.data.chat_endpoint import KEY
from tutelage.data.tokenizer import same_vocabulary
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.server.teacher_server import connect_teacher

Teacher = Callable[[Rows], Tensor]
"""Rows -> the log-probabilities of their response tokens, Float[B, R]"""


def refer_to_teacher(settings: DistillSettings, policy: Policy, *, whole: bool) -> None:
    """Put the teacher of a folder in the place of the policy's reference, laid out over the ranks as the policy is.
    `whole`: whole distributions are compared.

    Raises TutelageError where it has another vocabulary.
    """

    def load(model: config.Model) -> Policy:
        return Policy(load_backbone(model))

    teacher = lay_out_beside(policy, replace(settings.model, path=settings.teacher), load)
    if not same_vocabulary(policy.tokenizer, teacher.tokenizer):
        raise TutelageError(
            f"The teacher {settings.teacher!r} has another vocabulary than {settings.model.path!r}, and distillation "
            "compares the probabilities of the same tokens. Give a teacher of the model's own family; what another one "
            "writes can be learnt as demonstrations: tutelage sample, then tutelage sft."
        )
    if whole and teacher.vocabulary != policy.vocabulary:
        raise TutelageError(
            f"The teacher {settings.teacher!r} gives a probability to {counted(teacher.vocabulary, 'token')} and "
            f"{settings.model.path!r} to {policy.vocabulary:,}, so that their distributions cannot be compared as a "
            "whole, although their tokenizers agree. --recipe reverse_kl compares the tokens of the answers alone."
        )
    policy.refer_to(teacher)


def served_teacher(settings: DistillSettings, policy: Policy, ranks: Ranks) -> Teacher:
    """The teacher behind an address, which rank 0 asks. Raises TutelageError where it cannot be used."""
    key = os.environ.get(KEY, "")

    def connect() -> Teacher | None:
        return connect_teacher(settings.teacher, policy.tokenizer, key=key) if ranks.is_first else None

    server = ranks.together(connect)

    def ask(rows: Rows) -> Tensor:
        def own() -> Tensor:
            assert server is not None
            return server(rows).cpu()

        return ranks.shared(own).to(rows.mask.device)

    return ask
