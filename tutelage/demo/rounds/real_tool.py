"""Demonstration of a tool on a real chat model: SmolLM2, whose chat template shows no tools, learns to call one.

A template that shows a tool → SFT on few calls → GRPO by right answers → evaluation, as settings of the workflows.
SmolLM2 as it is answers the same questions without the tool. Both trainings use LoRA.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tutelage.base import config
from tutelage.commands.evaluate.run import evaluate
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.improve.run import prepare_improve
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.sft.run import prepare_sft
from tutelage.commands.sft.settings import SftSettings
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import message_row
from tutelage.data.worlds.tool_questions import TOOL, prompts_of, sums
from tutelage.demo.rounds.real import RANK
from tutelage.demo.rounds.round import RoundPlace, Stage, Story, Texts, evaluated, evaluation, training, with_texts
from tutelage.models.backbone import load_backbone, save_model

STORY = Story(
    title="Teaching a chat model to call a tool",
    about=(
        "SmolLM2, a chat model of 135 million parameters, is asked for products of two numbers, which it cannot"
        " compute. Its chat template knows no tools, so it gets one that shows a calculator, learns from few examples"
        " what a call is, and then from right answers what to call it with."
    ),
    command="tutelage demo --world real --tool",
)
SOLVED = "rule:number(column=solution)"
TURNS = 3
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nYou can call {% for tool in tools %}{{ tool.function.name }}("
    "{{ (tool.function.parameters.properties or {}) | join(', ') }}){{ '' if loop.last else ', ' }}{% endfor %}."
    "<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    '{% for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", "arguments": '
    "{{ call.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""SmolLM2's chat template without its usual system message, with the names of tools and their arguments, and calls."""
OFFERED = {
    "type": "function",
    "function": {"name": TOOL, "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}}},
}
"""The tool as the demonstrations offer it: the template shows no more of its schema."""
ABOUT = {"alone": "SmolLM2 as it is, with its own template and without a tool, answers the held-out questions."}


@dataclass(frozen=True, kw_only=True)
class RealToolScale:
    """Size of the round, and its model."""

    model: str = "smollm2"
    demonstrations: int = 32
    train_prompts: int = 200
    steps: int = 6
    batch: int = 4
    """Questions of a step, each with the recipe's number of episodes."""
    turn_tokens: int = 40
    """Maximum length of a turn in tokens."""
    test_prompts: int = 60
    """Held-out questions of the evaluation."""


@dataclass(frozen=True, kw_only=True)
class RealToolRound:
    """Stages of this world in one place."""

    place: RoundPlace
    scale: RealToolScale
    story: Story = STORY

    def stages(self) -> list[Stage]:
        """All stages, in order."""
        alone, tooled, scale = self._alone(), self._evaluate(), self.scale
        texts = Texts(demonstrations=scale.demonstrations, train_prompts=scale.train_prompts, seed=self.place.seed)
        stages = [
            Stage("alone", "Without a tool", (alone,), lambda: evaluate(alone), kind="evaluate", about=ABOUT["alone"]),
            training("sft", "Supervised fine-tuning", self._sft(), prepare_sft),
            training("improve", "GRPO", self._improve(), prepare_improve),
            Stage("evaluate", "Evaluation", (tooled,), lambda: evaluate(tooled)),
        ]
        return [with_texts(stages[0], texts, self._write), *stages[1:]]

    def results(self) -> dict[str, Any]:
        """Main results: those of the evaluation, and the share of questions that SmolLM2 solves alone."""
        alone = json.loads((self.place.folder / "alone" / "summary.json").read_text(encoding="utf-8"))
        return evaluated(self.place.folder / "evaluate") | {"alone": alone["model"]["gold_mean"]}

    def _write(self) -> None:
        """Write demonstrations and questions, and the model with a template that shows tools."""
        place, scale = self.place, self.scale
        train = sums("train", scale.demonstrations + scale.train_prompts, place.seed)
        examples, questions = train[: scale.demonstrations], train[scale.demonstrations :]
        rows = ({"messages": list(map(message_row, one.demonstration)), "tools": [OFFERED]} for one in examples)
        write_jsonl(place.data("demonstrations.jsonl"), rows)
        write_jsonl(place.data("prompts_train.jsonl"), map(to_row, prompts_of(questions, "train")))
        held_out = sums("held_out", scale.test_prompts, place.seed)
        write_jsonl(place.data("prompts_held_out.jsonl"), map(to_row, prompts_of(held_out, "held_out")))
        start = load_backbone(config.Model(scale.model, device="cpu", engine="plain"))
        start.tokenizer.chat_template = TEMPLATE
        save_model(start.model, start.tokenizer, Path(place.data("model")))

    @property
    def _sampling(self) -> config.Sampling:
        return config.Sampling(temperature=1.0, max_new_tokens=self.scale.turn_tokens)

    def _sft(self) -> SftSettings:
        return SftSettings(
            **self.place.run("sft"),
            model=self.place.model_at(self.place.data("model")),
            data=self.place.data("demonstrations.jsonl"),
            answers="every",
            epochs=1.0,
            batch_size=8,
            lora=config.Lora(rank=RANK),
            optimiser=config.Optimiser(lr=1e-3, warmup=0.1),
            samples=0,
            rouge=0,
        )

    def _improve(self) -> ImproveSettings:
        return ImproveSettings(
            **self.place.run("improve"),
            model=self.place.model("sft"),
            prompts=self.place.data("prompts_train.jsonl"),
            reward=(SOLVED,),
            recipe="grpo",
            steps=self.scale.steps,
            batch_size=self.scale.batch,
            sampling=self._sampling,
            lora=config.Lora(rank=RANK),
            optimiser=config.Optimiser(lr=5e-4, eps=config.POLICY_EPS, warmup=0.1),
            checkpoints=config.Checkpoints(every=2),  # steps are slow, and an adapter is small
            tools=(TOOL,),
            turns=TURNS,
        )

    def _evaluate(self) -> EvaluateSettings:
        rewards = (f"gold={SOLVED}",)
        return evaluation(self.place, STORY, reward=rewards, sampling=self._sampling, tools=(TOOL,), turns=TURNS)

    def _alone(self) -> EvaluateSettings:
        return replace(
            self._evaluate(),
            model=self.place.model_at(self.scale.model),
            against="",
            out=self.place.folder / "alone",
            names=("SmolLM2", "SmolLM2"),
            sampling=config.Sampling(temperature=0.0, max_new_tokens=4 * self.scale.turn_tokens),
            tools=(),
            turns=EvaluateSettings.turns,
        )
