"""Settings of distillation from a teacher."""

from dataclasses import dataclass, field
from typing import ClassVar

from tutelage.base import config
from tutelage.base.config.bases import RecipeSettings
from tutelage.base.config.bounds import within
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class DistillSettings(RecipeSettings):
    """Distil a teacher into a model: the student answers, and every token of its answers is compared with what the
    teacher would have written there (on-policy distillation). With --data a share of the answers is given."""

    model: config.Model
    teacher: str = ""
    """The teacher, with the vocabulary of --model: the folder or hub name of a causal language model, an adapter, a
    .gguf file; or for --recipe reverse_kl the address of a server of it (vLLM or tutelage serve), such as
    http://localhost:8000. A key, if the server wants one, is read from TUTELAGE_ENDPOINT_KEY."""
    prompts: str = ""
    """Prompts that the student answers: a file or hub data set; any format of demonstrations or preferences serves."""
    data: str = ""
    """Demonstrations, with --on-policy below 1: their prompts are answered by the student in that share, and have their
    given responses in the rest."""
    on_policy: float = 1.0
    """Share of the answers that the student writes itself (λ of GKD, TRL's lmbda); the others are those of --data. 0
    writes none: supervised distillation."""
    recipe: str = "gkd"
    """What is minimised: gkd, a divergence between whole distributions; reverse_kl, the KL of whole answers from their
    own tokens; any other recipe with a penalty, or module:NAME of your own."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, such as penalty.mixture=1, with which the divergence of gkd is KL(student‖teacher); 0 is
    KL(teacher‖student)."""
    sampling: config.Sampling = field(
        default_factory=lambda: config.Sampling(temperature=1.0, max_new_tokens=64)
    )

    RATES: ClassVar[config.Rates] = config.Rates(all=1e-5, lora=1e-4)
    """Learning rates if --optimiser.lr is omitted."""

    @property
    def is_served(self) -> bool:
        """Whether the teacher is a server."""
        return self.teacher.startswith(("http://", "https://"))

    def __post_init__(self) -> None:
        config.settle_rate(self)
        super().__post_init__()
        within(self, 0, 1, "on_policy")
        if not self.teacher:
            raise TutelageError(
                "distill needs a --teacher to learn from. To learn the best of the model's own completions by a "
                "reward, use tutelage rejection."
            )
        if self.teacher == self.model.path:
            raise TutelageError(
                f"--teacher and --model are both {self.teacher!r}: a model has nothing to learn from itself."
            )
        _check_sources(self)
        sampling = self.sampling
        if sampling.top_k or sampling.top_p < 1 or sampling.min_p:
            raise TutelageError(
                "distill compares the distribution that it samples from with the teacher's; top_k, top_p or min_p "
                "would make it another. Use the temperature."
            )
        if sampling.temperature == 0:
            raise TutelageError(
                "At temperature 0 there is no distribution to compare; use 1, at which the models are as they are."
            )
        if self.is_served and sampling.temperature != 1:
            raise TutelageError(
                f"A server tells a teacher's probabilities at temperature 1, and --sampling.temperature is "
                f"{sampling.temperature:g}: leave it at 1, or give the teacher's folder."
            )
        if self.lora.dropout:
            raise TutelageError(
                "--lora.dropout would make the model that learns another than the one that answered; leave it out."
            )


def _check_sources(settings: DistillSettings) -> None:
    """Refuse prompts and data that do not go with the share of the student's own answers."""
    if settings.on_policy == 1:
        if settings.data:
            raise TutelageError(
                "--data gives answers, but with --on-policy 1 the student writes all of them: set --on-policy 0.5, or "
                "give the file as --prompts."
            )
        if not settings.prompts:
            raise TutelageError("distill needs --prompts that the student answers.")
        return
    if not settings.data:
        raise TutelageError(
            f"--on-policy {settings.on_policy:g} leaves a share of the answers to be given: name a file with --data."
        )
    if settings.prompts:
        raise TutelageError("With --on-policy below 1 the prompts are those of --data: leave --prompts out.")
    if settings.rollouts and not settings.on_policy:
        raise TutelageError("With --on-policy 0 nothing is sampled, so --rollouts would do nothing.")
