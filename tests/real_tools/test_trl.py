"""An environment of TRL's `environment_factory` in `GRPOTrainer` and as `--environment`: the same rows and tools.

make test-tools
"""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tutelage.base import config
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.environment import Environment
from tutelage.rollout.episodes import EnvironmentClass
from tutelage.rollout.generator import encode_prompts, prompt_tokens
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.player import Player
from tutelage.rollout.tools.tool import Toolbox

ROWS: list[dict[str, Any]] = [
    {"prompt": [{"role": "user", "content": f"How far is {place}?"}], "goal": place} for place in ("Ayr", "Ur")
]


class Map:
    """An environment that notes what it is asked."""

    resets: ClassVar[list[dict[str, Any]]] = []
    rewards: ClassVar[list[str]] = []

    def reset(self, **row: Any) -> str:
        self.goal = row["goal"]
        self.resets.append(row)
        return f" Go to {self.goal}."

    def far(self, place: str, miles: bool = True) -> float:
        """Distance to a place.

        Args:
            place: Its name.
            miles: Whether it is in miles.
        """
        return 6.5

    def get_reward(self) -> float:
        self.rewards.append(self.goal)
        return float(len(self.goal))


def test_trl_and_an_environment_give_the_same_rows_prompts_and_tools(tiny_model: Any, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoTokenizer

    model = tiny_model("qwen3", max_position_embeddings=2000)
    tokenizer = AutoTokenizer.from_pretrained(model)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    shown: list[str] = []

    class Trainer(trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def _generate_single_turn(self, prompt_ids: Any, *arguments: Any, **more: Any) -> Any:
            shown.extend(map(tokenizer.decode, prompt_ids))
            return super()._generate_single_turn(prompt_ids, *arguments, **more)

    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=4, num_generations=2,
        max_completion_length=4, report_to=[], use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True,
        chat_template_kwargs={"enable_thinking": False}, shuffle_dataset=False,
    )  # fmt: skip
    trainer = Trainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(ROWS),
        environment_factory=Map,
        args=settings,
    )
    trainer.train()
    theirs, their_rewards = [json.dumps(row, sort_keys=True) for row in Map.resets], set(Map.rewards)
    Map.resets.clear()
    Map.rewards.clear()

    policy = Policy(load_backbone(config.Model(model, device="cpu")))
    policy.tokenizer.chat_template = tokenizer.chat_template
    policy.end_ids = tuple(range(len(tokenizer)))  # every turn is one token: none is cut
    play = EnvironmentClass(Map, Toolbox(()))
    environment = Environment(play, play.tools)
    prompts = [Prompt(row["goal"], user(row["prompt"][0]["content"]), data={"goal": row["goal"]}) for row in ROWS]
    prompts = environment.offer(prompts)
    asked: list[str] = []

    class Asked(LocalGenerator):
        def generate(self, prompts: Any, *arguments: Any, **more: Any) -> Any:
            asked.extend(map(policy.tokenizer.decode, prompts.tokens))
            return super().generate(prompts, *arguments, **more)

        def continuous(self, *arguments: Any, **more: Any) -> Any:
            return nullcontext()  # turn by turn, so that `generate` sees every prompt

    player = Player(Asked(policy), environment, {prompt.id: prompt for prompt in prompts}, policy, policy.context)
    rollout = player.generate(
        prompt_tokens(encode_prompts(prompts, policy.tokenizer)), 2, config.Sampling(max_new_tokens=4), seed=1
    )
    assert sorted(json.dumps(row, sort_keys=True) for row in Map.resets) == sorted(theirs)
    assert set(asked) == set(shown)
    assert set(Map.rewards) == their_rewards == {"Ayr", "Ur"}
    assert rollout.outcome is not None
    assert set(rollout.outcome.tolist()) == {2.0, 3.0}
