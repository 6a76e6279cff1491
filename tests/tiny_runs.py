"""One chain of tiny trained models, for tests that are not about a training of their own: sft, reward, improve, dpo."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import tiny
from tiny_commands import files, improve_settings, model, reward_settings, sft_settings

import tutelage as tt
from tutelage.base import config
from tutelage.commands.table import find


@dataclass(frozen=True)
class TinyRuns:
    """Finished runs in `folder` (sft, reward, improve, dpo), trained in `source`, where their data and models are. The
    first ones are shared and only read: what opens a run takes a `copy`."""

    folder: Path
    source: Path

    @property
    def _data(self) -> dict[str, str]:
        return {name: str(self.source / "data" / f"{name}.jsonl") for name in ("sft", "pairs", "prompts")}

    @property
    def sft(self) -> tt.SftSettings:
        """Settings of the first run, on a random model."""
        return sft_settings(self.source / "base", self._data, self.folder / "sft")

    @property
    def reward(self) -> tt.RewardSettings:
        """Settings of the reward model, which begins with the model of `sft`."""
        return reward_settings(self.source / "sft" / "model", self._data, self.folder / "reward")

    @property
    def improve(self) -> tt.ImproveSettings:
        """Settings of two steps of PPO on the reward model, from the model of `sft`."""
        judge = str(self.source / "reward" / "model")
        return improve_settings(self.source / "sft" / "model", self._data, self.folder / "improve", reward=(judge,))

    @property
    def dpo(self) -> tt.DpoSettings:
        """Settings of DPO on the pairs of the reward model, from the model of `sft`."""
        return find("dpo").settings(
            model=model(self.source / "sft" / "model"),
            data=self._data["pairs"],
            out=self.folder / "dpo",
            quiet=True,
            batch_size=9,
            max_length=64,
            held_out=0.1,
            evaluate_every=1,
            optimiser=config.Optimiser(lr=1e-3),
        )

    def copy(self, folder: Path) -> "TinyRuns":
        """The runs in a folder of the test's own, which may open and change them."""
        for name in ("sft", "reward", "improve", "dpo"):
            shutil.copytree(self.folder / name, folder / name)
        return TinyRuns(folder, self.source)


def train(folder: Path) -> None:
    """Train the chain in an empty folder."""
    runs = TinyRuns(folder, folder)
    tiny.save("llama", folder / "base")
    files(folder / "data")
    tt.sft(runs.sft)
    tt.reward(runs.reward)
    tt.improve(runs.improve)
    tt.dpo(runs.dpo)
