"""`tutelage distill`: rejection sampling. A policy learns to say at once what was the best of many answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tutelage import config
from tutelage.config.limits import a_share, above_zero, at_least
from tutelage.config.rounds import RoundSettings
from tutelage.config.run import BatchSettings, RunSettings
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.core.rows import Encoded
    from tutelage.data.records import Prompt
    from tutelage.models.policy import Policy
    from tutelage.train.run.folder import Run
    from tutelage.train.supervised.job import Job
    from tutelage.train.supervised.own_answers import OwnAnswer


@dataclass(frozen=True, kw_only=True)
class Settings(RoundSettings, RunSettings, BatchSettings):
    """Rejection sampling (RAFT, Dong et al. 2023, arXiv 2304.06767): sample answers to each prompt, keep those that
    score best, fine-tune on them; in --rounds, each with the answers of the policy as it has become."""

    model: config.Model
    keep: int = 1
    """Best answers to each prompt that are learnt."""
    overall: float = 0.0
    """Instead of --keep, the share of all answers of a round that are learnt, the best of all prompts together; prompts
    whose answers score high then count for more."""
    lora: config.Lora = field(default_factory=config.Lora)
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(lr=2e-5, warmup=0.03))
    epochs: float = 1.0
    """Passes over the answers of a round."""
    held_out: float = 0.05
    """Share of the prompts kept aside to measure the score of a fresh answer."""
    evaluate_every: int = 50
    """Steps between looks at these."""

    def __post_init__(self) -> None:
        BatchSettings.__post_init__(self)
        RoundSettings.__post_init__(self)
        above_zero(self, "epochs")
        at_least(self, keep=1, evaluate_every=1)
        a_share(self, "held_out", "overall")
        if not self.prompts or not self.reward:
            raise TutelageError("distill needs --prompts to answer and a --reward that scores the answers.")
        if self.keep >= self.samples:
            raise TutelageError(
                f"--keep {self.keep} of --samples {self.samples} rejects nothing: keep fewer, or sample more."
            )
        if self.overall and self.keep != type(self).keep:
            raise TutelageError(
                "--keep counts per prompt and --overall over all of them: give one of the two."
            )


def main(settings: Settings) -> int:
    """Run it; see `Settings`."""
    from tutelage.commands.runs import begin, budget_of, finish, say
    from tutelage.data.formats import load_prompts
    from tutelage.infer.best_of_n import best_of_n_kl
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy
    from tutelage.train.supervised.job import held_out, train

    loaded = load_prompts(settings.prompts)
    say(settings, loaded.describe())
    if not settings.overall and settings.keep == 1:
        nats = best_of_n_kl(settings.samples)
        say(
            settings,
            f"Best of {settings.samples}: a round aims at most {nats:.2f} nats from where it begins.",
        )
    with begin(settings) as run:
        if run is None:
            return 0
        policy = Policy(load_backbone(settings.model, settings.lora, seed=settings.seed))
        job, figures = _job(settings, run, policy, loaded.records)
        budget = budget_of(settings, run, policy)
        if run.start == 0 and job.look is not None:
            run.log(0, held_out(job))
        train(
            run,
            policy,
            job,
            settings,
            settings.optimiser,
            budget=budget,
            look_every=settings.evaluate_every,
        )
        told = finish(run, policy.save_whole, figures)
        if "held_out/score" in told:
            say(settings, f"held-out score {told['held_out/score']:.3f}")
    return 0


def _job(
    settings: Settings, run: "Run", policy: "Policy", prompts: "Sequence[Prompt]"
) -> tuple["Job", Mapping[str, Any]]:
    """What is learnt, and how many prompts there are."""
    from tutelage.commands.own_answers import look_at_scores, own_answers, steps_of_a_round
    from tutelage.core.rows import collate
    from tutelage.data.chat import pad_token_id
    from tutelage.rewards.named import make_reward
    from tutelage.train.supervised.job import Job
    from tutelage.train.supervised.objectives import WeightedRows, imitate
    from tutelage.train.supervised.own_answers import InRounds, described, keep_best

    reward = make_reward(settings.reward, policy, settings.model)
    own, aside = own_answers(settings, run, policy, reward, prompts, settings.held_out)
    share = settings.overall * settings.samples if settings.overall else settings.keep
    steps = steps_of_a_round(settings, own, share, settings.epochs, settings.batch_size)

    def of_round(number: int) -> "list[Encoded]":
        return [one.row for one in keep_best(own.of(number), settings.keep, settings.overall)]

    def tell(step: int) -> Mapping[str, float]:
        if step % steps:
            return {}
        groups = own.of(step // steps)
        kept = keep_best(groups, settings.keep, settings.overall)
        _write_samples(run, step, kept)
        return described(groups, kept) | {"round": float(step // steps + 1)}

    items = InRounds(of_round, steps, settings.batch_size, settings.seed)
    pad = pad_token_id(policy.tokenizer)
    job = Job(
        label="distill",
        steps=steps * settings.rounds,
        batch=lambda step: WeightedRows.of(collate(items(step), pad, policy.device)),
        objective=lambda rows: imitate(policy, rows),
        look=look_at_scores(settings, policy, reward, aside) if aside else None,
        tell=tell,
        show=("loss", "score/mean", "score/kept", "held_out/score"),
    )
    return job, {"prompts": len(own.questions.items), "held_out_prompts": len(aside)}


def _write_samples(run: "Run", step: int, kept: "Sequence[OwnAnswer]") -> None:
    """A few of the answers that a round learns from, to read."""
    rows = [
        {"prompt": one.prompt.messages[-1].content, "completion": one.text, "score": one.score}
        for one in kept[:4]
    ]
    run.samples(step + 1, rows)
