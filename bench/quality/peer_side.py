"""`python -m bench.quality.peer_side JOB SPEC ANSWER`: TRL's trainers, in the environment of the peers.

Nothing here imports tutelage. A specification and an answer are files of JSON.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

Spec = dict[str, Any]
Found = dict[str, Any]


def main(job: str, spec: str, answer: str) -> None:
    """Do a job, and write what it found."""
    found = JOBS[job](json.loads(Path(spec).read_text()))
    unfinished = Path(answer).with_suffix(".part")
    unfinished.write_text(json.dumps(found))
    unfinished.rename(answer)


def reward(spec: Spec) -> Found:
    """`RewardTrainer`, and the scores of the test pairs, chosen less rejected."""
    model = AutoModelForSequenceClassification.from_pretrained(spec["model"], num_labels=1, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(spec["model"])
    model.config.pad_token_id = tokenizer.pad_token_id
    trainer = RewardTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=_rows(spec["train"]),
        args=RewardConfig(
            **_common(spec),
            per_device_train_batch_size=spec["batch"],
            num_train_epochs=1,
            max_length=512,
            train_sampling_strategy="sequential",
        ),
    )
    trainer.train()
    pairs = [json.loads(text) for text in Path(spec["test"]).read_text().splitlines()]
    sides = [_scored(model, tokenizer, [pair[side] for pair in pairs]) for side in ("chosen", "rejected")]
    differences = [round(better - worse, 5) for better, worse in zip(*sides, strict=True)]
    return {"loss": _logged(trainer, "loss"), "differences": differences}


@torch.no_grad()
def _scored(model: Any, tokenizer: Any, conversations: Sequence[Any]) -> list[float]:
    model.eval()
    scores: list[float] = []
    for start in range(0, len(conversations), 8):
        texts = [tokenizer.apply_chat_template(one, tokenize=False) for one in conversations[start : start + 8]]
        batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False)
        scores += model(**batch).logits[:, 0].tolist()
    return scores


def sft(spec: Spec) -> Found:
    """`SFTTrainer`, with the loss on the responses."""
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(spec["model"]),
        train_dataset=_rows(spec["train"]),
        args=SFTConfig(
            **_common(spec),
            per_device_train_batch_size=spec["batch"],
            num_train_epochs=1,
            max_length=512,
            train_sampling_strategy="sequential",
            completion_only_loss=True,
        ),
    )
    trainer.train()
    return {"loss": _logged(trainer, "loss"), "norm": _logged(trainer, "grad_norm")}


def grpo(spec: Spec) -> Found:
    """`GRPOTrainer`, against a function of texts; the policy is left in `spec["save"]`."""
    score = _function(spec["reward"])

    def rewarded(prompts: list[Any], completions: list[Any], **_: object) -> list[float]:
        return score([p[-1]["content"] for p in prompts], [c[0]["content"] for c in completions])

    groups, samples = spec["prompts_per_step"], spec["samples"]
    replayed = {"rollout_func": _replay(spec["answers"])} if "answers" in spec else {}
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(spec["model"]),
        reward_funcs=rewarded,
        train_dataset=_rows(spec["train"]),
        args=GRPOConfig(
            **_common(spec),
            per_device_train_batch_size=samples,
            gradient_accumulation_steps=groups,
            num_generations=samples,
            max_completion_length=spec["response"],
            max_steps=spec["steps"],
            shuffle_dataset=False,
            beta=spec["beta"],
            loss_type="grpo",
            temperature=1.0,
            adam_epsilon=spec["eps"],
        ),
        **replayed,
    )
    trainer.train()
    trainer.save_model(spec["save"])
    trainer.processing_class.save_pretrained(spec["save"])
    names = {"score": "reward", "kl": "kl", "norm": "grad_norm"}
    return {name: _logged(trainer, key) for name, key in names.items()}


def _replay(file: str) -> Callable[..., Any]:
    """A rollout of answers that were sampled elsewhere, in their order."""
    rows = iter([json.loads(text) for text in Path(file).read_text().splitlines()])

    def rollout(prompts: Sequence[Any], trainer: Any) -> Any:
        taken = [next(rows) for _ in prompts]
        if [row["messages"][-1]["content"] for row in taken] != [one[-1]["content"] for one in prompts]:
            raise RuntimeError("the prompts of the recorded answers are not those of the trainer")
        ids = {"prompt_ids": [row["prompt"] for row in taken], "completion_ids": [row["tokens"] for row in taken]}
        return ids | {"logprobs": None}

    return rollout


def _function(name: str) -> Callable[[list[str], list[str]], list[float]]:
    from bench.quality import scores

    function: Callable[[list[str], list[str]], list[float]] = getattr(scores, name)
    return function


def _common(spec: Spec) -> dict[str, Any]:
    """Arguments that every trainer gets: those of ours, and nothing saved or sent."""
    return {
        "output_dir": str(Path(spec["out"]) / "run"),
        "seed": spec["seed"],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "learning_rate": spec["lr"],
        "lr_scheduler_type": spec.get("schedule", "linear"),
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
    }


def _rows(path: str) -> Any:
    return load_dataset("json", data_files=path, split="train", cache_dir=str(Path(path).parent / "cache"))


def _logged(trainer: Any, name: str) -> list[float]:
    return [float(entry[name]) for entry in trainer.state.log_history if name in entry]


JOBS: dict[str, Callable[[Spec], Found]] = {"reward": reward, "sft": sft, "grpo": grpo}

if __name__ == "__main__":
    main(*sys.argv[1:])
