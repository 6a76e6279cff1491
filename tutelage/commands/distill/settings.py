"""Settings of distillation from a teacher."""

from dataclasses import dataclass, field

from tutelage.base import config
from tutelage.base.config.bases import RecipeSettings
from tutelage.base.config.bounds import within
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class DistillSettings(RecipeSettings):
    """Distil a teacher into a model: every token of the student's completions is compared with the teacher's
    distribution (on-policy distillation). With --data some completions come from a file."""

    teacher: str = ""
    """Teacher with the vocabulary of --model: folder or hub name of a causal language model, an adapter, a .gguf file;
    or, for --recipe reverse_kl, the address of a server (vLLM or tutelage serve), such as http://localhost:8000. If the
    server needs a key, it is read from TUTELAGE_ENDPOINT_KEY."""
    prompts: str = ""
    """Prompts for the student: a file or hub data set; any format of demonstrations or preferences works."""
    data: str = ""
    """Demonstrations, with --on-policy below 1: the student completes that share of the prompts; the others keep their
    responses."""
    on_policy: float = 1.0
    """Share of completions sampled from the student (λ of GKD, TRL's lmbda); the others come from --data. 0: supervised
    distillation."""
    recipe: str = "gkd"
    """Objective: gkd, a divergence between whole distributions; reverse_kl, the KL of completions estimated from their
    tokens; any other recipe with a penalty, or a custom module:NAME."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, such as penalty.mixture=1, for which the divergence of gkd is KL(student‖teacher); 0 is
    KL(teacher‖student)."""
    sampling: config.Sampling = field(default_factory=lambda: config.Sampling(temperature=1.0, max_new_tokens=64))

    RATES = config.Rates(all=1e-5, lora=1e-4)

    @property
    def is_served(self) -> bool:
        """Whether the teacher is a server."""
        return self.teacher.startswith(("http://", "https://"))

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, 0, 1, "on_policy")
        if not self.teacher:
            raise TutelageError(
                "distill needs a --teacher. To train on the model's own completions with the highest reward, use "
                "tutelage rejection."
            )
        if self.teacher == self.model.path:
            raise TutelageError(f"--teacher and --model are both {self.teacher!r}: give another teacher.")
        _check_sources(self)
        if self.is_served and self.sampling.temperature != 1:
            raise TutelageError(
                f"A server returns a teacher's probabilities at temperature 1, but --sampling.temperature is "
                f"{self.sampling.temperature:g}: set it to 1, or give the teacher's folder."
            )


def _check_sources(settings: DistillSettings) -> None:
    """Refuse combinations of prompts and data that contradict the on-policy share."""
    if settings.on_policy == 1:
        if settings.data:
            raise TutelageError(
                "--data contains completions, but with --on-policy 1 the student writes all of them: set --on-policy "
                "0.5, or give the file as --prompts."
            )
        if not settings.prompts:
            raise TutelageError("distill needs --prompts for the student.")
        return
    if not settings.data:
        raise TutelageError(
            f"--on-policy {settings.on_policy:g} takes the other completions from a file: name it with --data."
        )
    if settings.prompts:
        raise TutelageError("With --on-policy below 1 the prompts come from --data: omit --prompts.")
    if settings.rollouts and not settings.on_policy:
        raise TutelageError("With --on-policy 0 nothing is sampled, so --rollouts has no effect.")
