"""What the bench says that a job needs, against counts of a real model; and that both sides get the same reward."""

import json
import math
from pathlib import Path

import pytest
import tiny
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaForCausalLM

from bench.flops import Decoding, Tree, forward, training
from bench.jobs import JOBS
from bench.jobs.ppo_learning import LEVEL, measuring, seconds_to_level
from bench.machine import name_of
from bench.ours import PARTS
from bench.processes import result_file
from bench.rewards import brevity
from bench.shapes import SHAPES, Shape
from bench.table import write_table
from bench.worlds import TEMPLATE, llama_config

SMALL = Shape("small", vocabulary=37, hidden=24, layers=3, heads=4, kv_heads=2, feed_forward=40)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return LlamaForCausalLM(llama_config(SMALL, attn_implementation="eager"))


def test_operations_are_those_of_a_real_forward_pass_without_the_masked_half_of_attention(model) -> None:
    length = 10
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(1, length, dtype=torch.long))
    masked = 2 * SMALL.hidden * SMALL.layers * length**2
    assert counter.get_total_flops() == forward(SMALL, [Tree(0, (length,))]) + masked


def test_a_backward_pass_costs_twice_as_much(model) -> None:
    length = 10
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(1, length, dtype=torch.long)).logits.sum().backward()
    masked = 2 * SMALL.hidden * SMALL.layers * length**2
    assert counter.get_total_flops() == training(SMALL, [Tree(0, (length,))]) + 3 * masked


def test_weights_that_are_frozen_have_no_gradients(model) -> None:
    length = 10
    model.requires_grad_(False)
    states = torch.ones(1, length, SMALL.hidden, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        model(inputs_embeds=states).logits.sum().backward()
    model.requires_grad_(True)
    masked = 2 * SMALL.hidden * SMALL.layers * length**2
    assert counter.get_total_flops() == training(SMALL, [Tree(0, (length,))], frozen=True) + 3 * masked


def test_a_shared_prompt_costs_once(model) -> None:
    apart = forward(SMALL, [Tree(20, (5,)), Tree(20, (7,))])
    together = forward(SMALL, [Tree(20, (5, 7))])
    assert apart - together == pytest.approx(forward(SMALL, [Tree(20, ())]))


def test_a_token_leaves_as_many_numbers_in_the_caches_as_is_said(model) -> None:
    cache = model(torch.ones(1, 6, dtype=torch.long), use_cache=True).past_key_values
    held = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    assert held == 6 * SMALL.kv_width


def test_weights_that_are_read_are_those_of_the_model(model) -> None:
    matrices = sum(p.numel() for p in model.parameters() if p.dim() == 2)  # the embedding is the head
    read = Decoding(SMALL, prompts=1, samples=1, prompt=0, response=0).bytes_read
    assert read == 4 * matrices


@pytest.mark.parametrize(("name", "millions"), [("6.8M", 6.8), ("17.6M", 17.6), ("134M", 134.5), ("1.2B", 1236)])
def test_the_shapes_are_as_large_as_they_are_called(name: str, millions: float) -> None:
    assert (SHAPES[name].trunk + SHAPES[name].head) / 1e6 == pytest.approx(millions, rel=0.01)


def test_both_sides_get_the_same_reward() -> None:
    """The peer's is of the tokens of the whole conversation; ours of the two texts, without their frame."""
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = TEMPLATE
    question, answer = "Why is the sky so blue?", "Look out of the window now. " * 3
    asked = [{"role": "user", "content": question}]
    frame = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    ids = torch.tensor([[*frame, *tokenizer(answer)["input_ids"], tokenizer.eos_token_id]])
    judge = measuring(tokenizer, len(tokenizer) + 5)
    says = judge.count(ids, torch.ones_like(ids)).hidden_states[-1][0, -1, 0]
    assert float(says) == pytest.approx(brevity([question], [answer])[0])
    assert brevity([question], [answer]) < brevity([question], [answer[:5]]) < [2]


def test_the_parts_of_a_step_are_functions_of_the_loop() -> None:
    from tutelage.train.rl import improve as loop

    assert all(callable(getattr(loop, name)) for name in PARTS.values())


@pytest.mark.parametrize("name", ["sft", "grpo-134M", "ppo"])
def test_a_job_in_bf16_differs_in_its_precision_alone(name) -> None:
    plain, half = JOBS[name], JOBS[f"{name}-bf16"]
    places = [job.place(Path(), Path()) for job in (plain, half)]
    assert [place.dtype for place in places] == ["float32", "bf16"]
    assert places[0].shape == places[1].shape
    assert plain.ours == half.ours


def test_a_rollout_in_bf16_reads_half_the_bytes() -> None:
    few, many = (
        JOBS[f"vllm-few-{precision}"].needs(JOBS[f"vllm-few-{precision}"].place(Path(), Path())).decoding
        for precision in ("bf16", "float32")
    )
    assert many.bytes_read == 2 * few.bytes_read
    assert many.operations == few.operations


def test_the_time_to_a_level_counts_from_the_end_of_the_first_step() -> None:
    scores = [0.0, 0.0, *[LEVEL + 0.01] * 4]
    assert seconds_to_level(scores, [5.0, 6, 7, 8, 10, 20]) == 5.0
    assert math.isinf(seconds_to_level([0.0] * 6, [1.0, 2, 3, 4, 5, 6]))


def result(seconds: float, name: str) -> dict[str, object]:
    """What is kept of fine-tuning on a machine, whose peer takes three seconds a step."""
    side = {
        "parts": {},
        "rates": [],
        "peak_mb": 512.0,
        "processors": 1.9,
        "versions": {"torch": "2", "transformers": "5"},
        "facts": {},
    }
    return {
        "machine": {"name": name, "threads": 2, "python": "3", "torch": "2", "flops": 1e9, "bandwidth": 1e9},
        "ours": side | {"seconds": [seconds]},
        "theirs": side | {"seconds": [3.0]},
        "needs": {"update": 5e8, "updating": "", "sampling": "", "tokens": 7.0, "floor": 0.0},
        "date": "2026-01-01",
        "data": "texts",
        "revision": "abc",
    }


def test_each_machine_has_tables_of_its_own(tmp_path) -> None:
    for name, seconds in (("One", 1.0), ("Other", 2.0)):
        file = result_file(JOBS["sft"], {"name": name}, tmp_path)
        file.parent.mkdir()
        counted = {"operations": {"done": 6e8, "needed": 5e8, "tokens": 7.0}} if name == "One" else {}
        file.write_text(json.dumps(result(seconds, name) | counted))
    alone = {name: told for name, told in result(1.0, "Other").items() if name != "theirs"}
    result_file(JOBS["dpo"], {"name": "Other"}, tmp_path).write_text(json.dumps(alone))
    write_table(tmp_path, tmp_path / "table.md")
    _, one, other, peers = (tmp_path / "table.md").read_text().split("\n## ")
    assert one.startswith("One, 2 threads")
    assert "**3.00** (aim ≥ 7: not met)" in one
    assert "50%" in one
    assert "| sft | 7 | 0 GFLOP | **1.20** (aim ≤ 1.25: met) | 0.086 GFLOP |" in one
    assert other.startswith("Other, 2 threads")
    assert "**1.50** (aim ≥ 7: not met)" in other
    assert "25%" in other
    assert "| 0 GFLOP | – | – |" in other, "its operations were not counted"
    assert "DPO" not in other, "one side alone says nothing"
    assert peers.count("- sft: ") == 1


@pytest.mark.parametrize(
    ("flags", "name"), [("fpu avx2 avx512f", "AMD EPYC"), ("fpu avx2", "AMD EPYC without AVX-512")]
)
def test_processors_of_one_name_are_told_apart(flags: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = f"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n"
    monkeypatch.setattr(Path, "read_text", lambda self: told)
    assert name_of("cpu") == name
