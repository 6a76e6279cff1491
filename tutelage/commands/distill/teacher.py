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
"""Function from rows to the log-probabilities of their response tokens, Float[B, R]."""


def refer_to_teacher(settings: DistillSettings, policy: Policy, *, whole: bool) -> None:
    """Use a teacher from a folder as the policy's reference, laid out over the ranks as the policy is.

    `whole`: whole distributions are compared.

    Raises TutelageError if its vocabulary differs.
    """

    def load(model: config.Model) -> Policy:
        return Policy(load_backbone(model))

    teacher = lay_out_beside(policy, replace(settings.model, path=settings.teacher), load)
    if not same_vocabulary(policy.tokenizer, teacher.tokenizer):
        raise TutelageError(
            f"The vocabulary of the teacher {settings.teacher!r} differs from that of {settings.model.path!r}, and "
            "distillation compares the probabilities of the same tokens. Give a teacher of the same model family, or "
            "train on the completions of another one as demonstrations: tutelage sample, then tutelage sft."
        )
    if whole and teacher.vocabulary != policy.vocabulary:
        raise TutelageError(
            f"The teacher {settings.teacher!r} has an output layer of {counted(teacher.vocabulary, 'token')} and "
            f"{settings.model.path!r} one of {policy.vocabulary:,}, so that whole distributions cannot be compared, "
            "although the tokenizers agree. --recipe reverse_kl compares only the tokens of the completions."
        )
    policy.refer_to(teacher)


def served_teacher(settings: DistillSettings, policy: Policy, ranks: Ranks) -> Teacher:
    """Return the teacher at an address, queried by rank 0. Raises TutelageError if it cannot be used."""
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
