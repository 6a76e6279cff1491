"""Demonstration of a policy that acts: a small model learns to look things up and to compute with its tools.

SFT → episodes → raters judge their steps → step reward → RLOO by it → RLOO with further seeds, and by the outcome
alone → evaluation, as settings of the workflows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from tutelage.base import config
from tutelage.commands.evaluate.run import evaluate
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.improve.run import prepare_improve
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.reward.run import prepare_reward
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.sample.run import sample
from tutelage.commands.sample.settings import SampleSettings
from tutelage.commands.sft.run import prepare_sft
from tutelage.commands.sft.settings import SftSettings
from tutelage.commands.terminal import complete
from tutelage.data.formats import load_completions, load_prompts
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Messages, Prompt, Split, Step, message_row
from tutelage.data.worlds import Market, good_steps
from tutelage.demo.rounds.round import RoundPlace, Stage, Story, Texts, evaluated, evaluation, training, with_texts
from tutelage.demo.rounds.simulated_study import Judging
from tutelage.demo.rounds.step_study import JudgedEpisode, hold_step_study, judged_episodes
from tutelage.models.fresh import save_fresh
from tutelage.people.simulated_raters import ReliableRater
from tutelage.stats.intervals import mean_interval
from tutelage.train.run.json_lines import read_lines

STORY = Story(
    title="Teaching a small model to use its tools",
    about=(
        "A language model of 180,000 parameters, made from nothing, answers questions about prices. What it cannot know"
        " it has to look up, and what it cannot compute it has to ask; but most demonstrations, from which it"
        " learns first, guess at some step."
    ),
    command="tutelage demo --world tools",
)
TOOLS = ("calculator", "search")
TURNS = 6
"""Turns of an episode at most; the longest questions need four."""
SOLVED = "rule:exact(column=solution)"
RATERS = {"Amina": 0.95, "Bruno": 0.9, "Chen": 0.85, "Dalia": 0.8, "Emeka": 0.7, "Freya": 0.55}
"""Simulated raters, with the probability that each is right about a step."""
FOLD = "min"
"""Score of an episode by the step reward."""
ABOUT = {
    "judge": (
        "Raters see an episode and say of every step whether it is good: of what was called, of what came back, and of"
        " the answer. From their votes alone the labels and the reliability of each are estimated."
    ),
    "reward": (
        "A process reward model is trained on the labels to tell the probability that a step is good. It is tested on"
        " episodes of other questions against the truth."
    ),
    "judge_outcome": (
        "For comparison, the same raters judge the answer alone, after they have read the episode before it: the same"
        " number of votes, on more episodes."
    ),
    "reward_outcome": "A reward model of the same kind is trained on these labels, which say nothing of earlier steps.",
    "compare": (
        "The share of held-out questions that are solved, by what the policy was paid for and by the seed of its"
        " training: the step reward, the outcome reward of as many votes, and the solution itself, which is known where"
        " answers can be checked."
    ),
}
"""What the report says about the stages of this world."""
MARKS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "[TOOL_CALLS]", "[ARGS]")
TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool.function.name }} {% endfor %}{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}[TOOL_CALLS]{{ call.function.name }}[ARGS]"
    "{{ call.function.arguments | tojson }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Chat template, which writes calls as Mistral's do."""


@dataclass(frozen=True, kw_only=True)
class ToolsScale:
    """Size of the round."""

    shape: config.Shape = field(
        default_factory=lambda: config.Shape(vocabulary=400, hidden=64, layers=3, heads=4, context=192)
    )
    demonstrations: int = 1700
    sft_epochs: float = 4.0
    sampled_prompts: int = 420
    """Questions whose episodes are sampled for the raters."""
    judged_prompts: int = 120
    """How many of them have episodes that are judged step by step. Outcomes are judged in more episodes, with the same
    number of votes in total."""
    episodes: int = 4
    """Episodes of each of them."""
    overlap: int = 3
    """Raters per episode."""
    reward_epochs: float = 3.0
    steps: int = 16
    batch: int = 32
    """Questions of a step, each with the recipe's number of episodes."""
    seeds: int = 3
    """Runs of reinforcement learning, with seeds of their own."""
    turn_tokens: int = 24
    """Maximum length of a turn in tokens."""
    test_episodes: int = 2
    """Episodes of each held-out question."""


@dataclass(frozen=True, kw_only=True)
class ToolsRound:
    """Stages of this world in one place."""

    place: RoundPlace
    scale: ToolsScale
    story: Story = STORY

    @property
    def texts(self) -> Texts:
        """Amounts of the texts, and their seed."""
        scale = self.scale
        return Texts(demonstrations=scale.demonstrations, judged_prompts=scale.sampled_prompts, seed=self.place.seed)

    def stages(self) -> list[Stage]:
        """All stages, in order."""
        evaluating, runs, sampling, judging = self._evaluate("improve"), self._runs(), self._sample(), self._judging()
        steps, outcome = self._reward("reward", "judge"), self._reward("reward_outcome", "judge_outcome")
        improving, *others = [settings for own in runs.values() for settings in own]
        stages = [
            training("sft", "Supervised fine-tuning", self._sft(), prepare_sft),
            Stage("sample", "Sampling episodes", (sampling,), lambda: sample(replace(sampling, name="sft/model"))),
            Stage("judge", "Raters judge steps", (judging,), lambda: self._judge(judging), about=ABOUT["judge"]),
            training("reward", "Step reward", steps, prepare_reward, about=ABOUT["reward"]),
            Stage(
                "judge_outcome", "Raters judge outcomes", (judging,), lambda: self._judge_outcomes(judging),
                kind="judge", about=ABOUT["judge_outcome"],
            ),
            training(
                "reward_outcome", "Outcome reward", outcome, prepare_reward,
                kind="reward", about=ABOUT["reward_outcome"],
            ),
            training("improve", "RLOO by the step reward", improving, prepare_improve),
            Stage(
                "compare", "Rewards compared", tuple(others), lambda: self._compare(runs), kind="compare",
                about=ABOUT["compare"],
            ),
            Stage("evaluate", "Evaluation", (evaluating,), lambda: evaluate(evaluating)),
        ]  # fmt: skip
        return [with_texts(stages[0], self.texts, self._write), *stages[1:]]

    def results(self) -> dict[str, Any]:
        """Main results: those of the evaluation, of both studies, and of all rewards and seeds."""
        out = self.place.folder
        judged, fitted, compared = (
            json.loads((out / name / "summary.json").read_text(encoding="utf-8"))
            for name in ("judge", "reward", "compare")
        )
        steps = {"labels": judged["label_accuracy"]} | {key: fitted[key] for key in ("accuracy", "accuracy_interval")}
        return evaluated(out / "evaluate") | {"step_reward": steps, "rewards": compared["rewards"]}

    def _write(self) -> None:
        """Write demonstrations, questions and price lists, and the model with random weights."""
        place, market = self.place, Market(self.place.seed)
        demonstrations = market.demonstrations(self.scale.demonstrations)
        offered = [{"type": "function", "function": {"name": name}} for name in TOOLS]
        rows = ({"messages": list(map(message_row, one)), "tools": offered} for one in demonstrations)
        write_jsonl(place.data("demonstrations.jsonl"), rows)
        splits: tuple[Split, Split] = ("train", "held_out")
        prompts = market.prompts("train")[: self.scale.sampled_prompts]
        write_jsonl(place.data("prompts_to_judge.jsonl"), map(to_row, prompts))
        for split in splits:
            write_jsonl(place.data(f"prompts_{split}.jsonl"), map(to_row, market.prompts(split)))
            write_jsonl(place.data(f"prices_{split}.jsonl"), market.price_list(split))
        texts, folder = list(map(_text, demonstrations)), Path(place.data("model"))
        save_fresh(texts, self.scale.shape, folder, place.seed, template=TEMPLATE, marks=MARKS)

    def _tools(self, split: Split) -> dict[str, Any]:
        """Settings of episodes with the prices of a split."""
        return {"tools": ("calculator", f"search:{self.place.data(f'prices_{split}.jsonl')}"), "turns": TURNS}

    @property
    def _sampling(self) -> config.Sampling:
        return config.Sampling(temperature=0.7, max_new_tokens=self.scale.turn_tokens)

    def _sample(self) -> SampleSettings:
        return SampleSettings(
            model=self.place.model("sft"),
            prompts=self.place.data("prompts_to_judge.jsonl"),
            out=self.place.folder / "sample",
            n=self.scale.episodes,
            sampling=self._sampling,
            seed=self.place.seed,
            quiet=self.place.quiet,
            **self._tools("train"),
        )

    def _judging(self) -> Judging:
        return Judging(
            raters=len(RATERS), overlap=self.scale.overlap, test_overlap=0, held_out=0.2, seed=self.place.seed
        )

    def _judge(self, judging: Judging) -> None:
        """Let the simulated raters judge every step of the episodes of the first questions."""
        episodes = self._episodes(self.scale.judged_prompts)
        hold_step_study(self.place.folder / "judge", episodes, _raters(), judging, quiet=self.place.quiet)

    def _judge_outcomes(self, judging: Judging) -> None:
        """Let the raters judge only the last step, of as many episodes as take the same number of votes in all."""
        out = self.place.folder
        votes = json.loads((out / "judge" / "judgements.json").read_text(encoding="utf-8"))["votes"]
        ends = [episode.end() for episode in self._episodes(self.scale.sampled_prompts)]
        count = round(votes / judging.overlap / (1 - judging.held_out))
        hold_step_study(out / "judge_outcome", ends[:count], _raters(), judging, quiet=self.place.quiet)

    def _episodes(self, prompts: int) -> list[JudgedEpisode]:
        """The sampled episodes of the first questions, with the truth about their steps."""
        sampled = self.place.folder / "sample"
        questions = load_prompts(sampled / "prompts.jsonl").records[:prompts]
        ids = {prompt.id for prompt in questions}
        episodes = load_completions(sampled / "completions.jsonl").records
        return judged_episodes(questions, [one for one in episodes if one.prompt_id in ids], _truth)

    def _sft(self) -> SftSettings:
        return SftSettings(
            **self.place.run("sft"),
            model=self.place.model_at(self.place.data("model")),
            data=self.place.data("demonstrations.jsonl"),
            answers="every",
            epochs=self.scale.sft_epochs,
            batch_size=32,
            optimiser=config.Optimiser(lr=4e-3, warmup=0.03, schedule="cosine"),
            evaluate_every=100,
            samples=0,
            rouge=0,
        )

    def _reward(self, stage: str, study: str) -> RewardSettings:
        return RewardSettings(
            **self.place.run(stage),
            model=self.place.model("sft"),
            data=str(self.place.folder / study / "steps.jsonl"),
            test=str(self.place.folder / study / "test_steps.jsonl"),
            steps=True,
            epochs=self.scale.reward_epochs,
            batch_size=16,
            optimiser=config.Optimiser(lr=1e-3, warmup=0.1, weight_decay=0.01),
            evaluate_every=20,
        )

    def _runs(self) -> dict[str, list[ImproveSettings]]:
        """Runs of reinforcement learning by their rewards, one for each seed. The first is the stage `improve`.

        A reward of outcomes knows nothing of earlier turns, so what it would pay them is left out: RLOO sees the sum.
        """
        learnt = self.place.folder
        rewards = {
            "step votes": (f"{FOLD}:{learnt / 'reward' / 'model'}", "turn_rloo"),
            "outcome votes": (f"last:{learnt / 'reward_outcome' / 'model'}", "rloo"),
            "solution": (SOLVED, "turn_rloo"),
        }
        names = {
            (reward, number): f"compare/{reward.replace(' ', '-')}-{number}"
            for reward in rewards
            for number in range(self.scale.seeds)
        } | {("step votes", 0): "improve"}
        return {
            reward: [self._improve(names[reward, number], *how, number) for number in range(self.scale.seeds)]
            for reward, how in rewards.items()
        }

    def _improve(self, stage: str, reward: str, recipe: str, number: int) -> ImproveSettings:
        return ImproveSettings(
            **self.place.run(stage) | {"seed": self.place.seed + number},
            model=self.place.model("sft"),
            prompts=self.place.data("prompts_train.jsonl"),
            reward=(reward,),
            recipe=recipe,
            steps=self.scale.steps,
            batch_size=self.scale.batch,
            sampling=self._sampling,
            watch=(f"gold/mean={SOLVED}",),
            optimiser=config.Optimiser(lr=1e-3, eps=config.POLICY_EPS, schedule="cosine"),
            **self._tools("train"),
        )

    def _evaluate(self, stage: str, out: str = "evaluate") -> EvaluateSettings:
        return evaluation(
            self.place,
            STORY,
            model=self.place.model(stage),
            out=self.place.folder / out,
            reward=(f"gold={SOLVED}",),
            n=self.scale.test_episodes,
            sampling=self._sampling,
            **self._tools("held_out"),
        )

    def _compare(self, runs: Mapping[str, Sequence[ImproveSettings]]) -> None:
        """Train with the further rewards and seeds, and write the share of questions that the policies solve: of
        held-out ones at the end, and of those of training step by step, with intervals of the means over the seeds."""
        for settings in chain.from_iterable(runs.values()):
            complete(prepare_improve(settings), quiet=self.place.quiet)
        solved = {name: [self._solved(settings.out) for settings in own] for name, own in runs.items()}
        means = {name: mean_interval(values) for name, values in solved.items()}
        columns = zip(*solved.values(), strict=True)
        rows = [{"name": f"seed {self.place.seed + n}", "values": list(own)} for n, own in enumerate(columns)]
        notes = [f"{one.low:.2f} to {one.high:.2f}" for one in means.values() if one.low is not None]
        rows.append({"name": "mean", "values": [one.value for one in means.values()], "note": " · ".join(notes)})
        rewards = {name: {"mean": one.value, "interval": [one.low, one.high]} for name, one in means.items()}
        curves = {name: _curve([settings.out for settings in own]) for name, own in runs.items()}
        summary = {"columns": list(runs), "rows": rows, "rewards": rewards, "curves": curves}
        file = self.place.folder / "compare" / "summary.json"
        file.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")

    def _solved(self, run: Path) -> float:
        """Share of the held-out questions that the policy of a run solves."""
        settings = self._evaluate(run.relative_to(self.place.folder).as_posix(), f"compare/evaluate-{run.name}")
        return evaluate(replace(settings, against="")).figures["gold_mean"]


def _curve(runs: Sequence[Path]) -> dict[str, list[float]]:
    """Share of the training questions that the episodes of each step solved: its mean, lowest and highest."""
    logs = [[row["gold/mean"] for row in read_lines(run / "metrics.jsonl") if "gold/mean" in row] for run in runs]
    steps = list(zip(*logs, strict=True))
    return {"mean": [fmean(own) for own in steps], "low": list(map(min, steps)), "high": list(map(max, steps))}


def _raters() -> list[ReliableRater]:
    return [ReliableRater(name, reliability) for name, reliability in RATERS.items()]


def _truth(prompt: Prompt, steps: Sequence[Step]) -> Sequence[bool]:
    """Whether each step of an episode is good."""
    goods, solution = prompt.data["goods"], prompt.data["solution"]
    return good_steps(cast(Sequence[str], goods), cast(str, solution), cast(Sequence[Messages], steps))


def _text(messages: Messages) -> str:
    """Text of a conversation, from which a tokenizer learns words."""
    return "\n".join(
        part
        for message in messages
        for part in (message.content, *(f"{call.name}\n{call.arguments}" for call in message.calls))
    )
