"""A demonstration in miniature: random models with the files that a finished one leaves."""

import json
from pathlib import Path

import pytest
import torch

from tutelage.base import config
from tutelage.commands.sample.settings import SampleSettings
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.worlds import World
from tutelage.demo.lab.start import NEEDED, Start, find
from tutelage.models.backbone import load_backbone, save_model
from tutelage.models.fresh import save_fresh
from tutelage.models.heads import new_reward_model


def write_demo(folder: Path) -> Path:
    """Folders of models that know nothing, but differ as the stages' models do."""
    world = World(0)
    (folder / "data").mkdir(parents=True)
    train, held_out, shown = world.prompts("train"), world.prompts("held_out"), world.demonstrations(20)
    write_jsonl(folder / "data" / "prompts_train.jsonl", map(to_row, train[:40]))
    write_jsonl(folder / "data" / "prompts_held_out.jsonl", map(to_row, held_out[:40]))
    write_jsonl(folder / "data" / "demonstrations.jsonl", map(to_row, shown))
    sft = folder / "sft" / "model"
    shape = config.Shape(vocabulary=500, hidden=16, layers=2, heads=2, context=192)
    save_fresh(list(world.corpus(4000)), shape, sft, seed=0)
    start = config.Model(path=str(sft), device="cpu")
    new_reward_model(start, config.Lora(), seed=1).save(_made(folder / "reward" / "model"))
    moved = load_backbone(start, config.Lora())
    with torch.no_grad():
        for number, parameter in enumerate(moved.model.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            parameter += 0.05 * parameter.std() * noise
    save_model(moved.model, moved.tokenizer, _made(folder / "improve" / "model"))
    asked = SampleSettings(
        model=start, prompts="x", out=folder / "sample", sampling=config.Sampling(temperature=0.7, max_new_tokens=10)
    )
    config.save(asked, _made(folder / "sample") / "config.json")
    stages = [{"name": name, "status": "done", "fingerprint": f"of {name}"} for name in NEEDED]
    (folder / "round.json").write_text(json.dumps({"stages": stages}))
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished demonstration of random models."""
    return write_demo(tmp_path_factory.mktemp("lab") / "demo")


@pytest.fixture(scope="session")
def start(demo: Path) -> Start:
    """Where experiments begin."""
    return find(demo)
