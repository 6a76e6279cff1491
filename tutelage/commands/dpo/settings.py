"""Settings of direct preference optimisation and its relatives."""

from dataclasses import dataclass, field, fields

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, RoundSettings, WeightSettings
from tutelage.base.config.bounds import changed_flags
from tutelage.base.errors import TutelageError
from tutelage.commands.study import StudySettings, study_address

LOSSES = ("dpo", "cdpo", "robust", "ipo", "hinge", "slic", "kto", "orpo", "simpo")
"""Names of `core.preferences.PREFERENCE_LOSSES`, without torch."""


@dataclass(frozen=True, kw_only=True)
class DpoSettings(StudySettings, RoundSettings, BatchSettings):
    """Train a policy on preferences directly: DPO, cDPO, robust DPO, IPO, hinge, SLiC, KTO, ORPO or SimPO. The
    preferences come from a file (--data), or are made during training (--prompts): in each of --rounds the policy
    writes completions, a reward or a judge compares them, and it is trained on the best against the worst (online, or
    iterative, DPO)."""

    data: str = ""
    """Preferences: a file or hub data set with chosen and rejected answers, whose format is detected; or a study: its
    folder, its database file, or a postgresql:// URL. Soft labels, weights and margins are used."""
    loss: str = "dpo"
    """Loss: dpo, cdpo, robust, ipo, hinge, slic, kto, orpo, simpo, or a custom module:NAME."""
    set: tuple[str, ...] = ()
    """Changes to the loss, such as beta=0.05 or smoothing=0.1."""
    unpaired: bool = False
    """The data are single answers labelled good or bad (prompt, completion, label), for kto."""
    judge: str = ""
    """Model that compares two completions, instead of --reward: the address of an OpenAI-compatible endpoint, such as
    http://localhost:8000/v1. If it needs a key, it is read from TUTELAGE_ENDPOINT_KEY."""
    judge_model: str = ""
    """Name of the judge at the endpoint."""
    judge_question: str = "Which response is better?"
    """Question that the judge answers about two responses."""
    reference: str = ""
    """Reference model; by default the initial model."""
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(warmup=0.1))
    epochs: float = 1.0
    """Passes over the preferences; with --prompts over those of a round."""
    held_out: float = 0.05
    """Share of held-out prompts, to measure loss and accuracy; with --prompts the score of a new completion. Unused
    with a judge."""
    evaluate_every: int = 50
    """Evaluate on held-out data every N steps."""

    RATES = config.Rates(all=1e-6, lora=1e-4)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.data) == bool(self.prompts):
            raise TutelageError(
                "Give either --data, existing preferences, or --prompts, for which --reward or --judge compares the "
                "policy's own completions."
            )
        if self.data:
            training = {each.name for each in fields(WeightSettings)}
            rounds = (each.name for each in fields(RoundSettings) if each.name not in training)
            if flags := changed_flags(self, (*rounds, "judge", "judge_model", "judge_question")):
                raise TutelageError(
                    f"With --data nothing is sampled, so {', '.join(flags)} would have no effect; use --prompts."
                )
            if self.unpaired and study_address(self.data) is not None:
                raise TutelageError(
                    "A study gives pairs, but --unpaired needs single answers: omit --unpaired, or name "
                    "unpaired.jsonl of an export."
                )
            return
        if bool(self.reward) == bool(self.judge):
            raise TutelageError("--prompts needs either --reward or --judge to compare the completions.")
        if bool(self.judge) != bool(self.judge_model):
            raise TutelageError("--judge is an address and --judge-model the name of the model there: give both.")
        if self.judge and self.samples != 2:
            raise TutelageError(f"A judge compares two completions; set --samples 2 instead of {self.samples}.")
        if self.judge and changed_flags(self, ("held_out", "evaluate_every", "evaluate_rows")):
            raise TutelageError(
                "A judge gives no score to measure on held-out prompts, so --held-out, --evaluate-every and "
                "--evaluate-rows have no effect with --judge."
            )
        if self.unpaired:
            raise TutelageError("--unpaired is a form of --data; the policy's own completions always come in pairs.")
