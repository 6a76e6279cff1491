"""Lines give the logits of a forward pass, whatever is read beside them, in whatever pieces, and read nothing twice."""

import random

import pytest
import tiny
import torch
from compilers import needs_compiler
from tiers import every_value

from tutelage.base import config
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.cpu import cpu_engine
from tutelage.engines.cpu.decoders import NativeLines
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

PROMPTS = (9, 9, 12, 3, 21)
"""Tokens of the prompts, of which the first two are equal."""
LENGTH = 44


@pytest.fixture
def multiplying(monkeypatch):
    """Products in bfloat16 whatever the processor."""
    monkeypatch.setattr(cpu_engine, "multiplies_bf16", lambda: True)


def policy_of(folder, engine, dtype="float32"):
    policy = Policy(load_backbone(config.Model(folder, device="cpu", engine=engine, dtype=dtype)))
    tiny.roughen(policy.model)
    return policy


def rows_of(seed=0):
    numbers = torch.randint(3, 250, (len(PROMPTS), LENGTH), generator=torch.Generator().manual_seed(seed)).tolist()
    numbers[1][: PROMPTS[1]] = numbers[0][: PROMPTS[0]]
    return numbers


def read_in_pieces(lines, rows, seed=1):
    """{(line, place): logits before the token at that place}, with pieces of random lengths of random lines, some of
    which go astray and are cut."""
    draws, at, found = random.Random(seed), [0] * len(rows), {}
    while any(place < LENGTH for place in at):
        pieces, counts, astray = {}, {}, {}
        for line, row in enumerate(rows):
            if at[line] == LENGTH or (at[line] and draws.random() < 0.4):
                continue
            size = min(draws.choice([1, 1, 1, 2, 7, 20]), LENGTH - at[line]) if at[line] else PROMPTS[line]
            pieces[line] = row[at[line] : at[line] + size]
            if at[line]:
                astray[line] = draws.choice([0, 0, 1, 2, 9])
                pieces[line] = pieces[line] + [7] * astray[line]
                counts[line] = draws.randint(1, size) + astray[line]
            at[line] += size
        if pieces:
            logits = lines.extend(pieces, counts).split([counts.get(line, 1) for line in pieces])
            for line, own in zip(pieces, logits, strict=True):
                wrong = astray.get(line, 0)
                first = at[line] + wrong + 1 - len(own)
                found |= {(line, first + place): each for place, each in enumerate(own[: len(own) - wrong])}
                lines.cut(line, wrong)
    return {key: value for key, value in found.items() if key[1] < LENGTH}


def differences(policy, rows, found):
    """Of the log-probabilities of the tokens after each piece, from those of the trainer."""
    batch = [EncodedRow(tuple(row[:size]), tuple(row[size:])) for row, size in zip(rows, PROMPTS, strict=True)]
    with torch.no_grad():
        expected = policy.scores(collate(batch, 0, torch.device("cpu"))).logp
    for (line, place), logits in found.items():
        logits = logits[None].float()
        _, maximum, log_sum = policy.engine.kernels.softmax_parts(logits.clone())
        own = float((logits[0, rows[line][place]] - maximum) - log_sum)
        yield abs(own - float(expected[line, place - PROMPTS[line]]))


@pytest.mark.parametrize("engine", ["plain", "cpu"])
@pytest.mark.parametrize("family", ["qwen3", "gpt2", "opt"])
def test_lines_give_the_logits_of_a_forward_pass(tiny_model, engine, family):
    policy, rows = policy_of(tiny_model(family), engine), rows_of()
    with policy.engine.lines(LENGTH) as lines:
        found = read_in_pieces(lines, rows)
        assert lines.rejected > 0
        assert lines.computed - lines.rejected == lines.tokens == sum(map(len, rows)) - PROMPTS[1]
        for line in (1, 0, 2, 3, 4):
            lines.drop(line)
        assert lines.tokens == 0
        assert 0 not in lines
    assert len(found) > 20
    assert max(differences(policy, rows, found)) < 1e-5


@needs_compiler
@pytest.mark.usefixtures("multiplying")
@pytest.mark.parametrize(("dtype", "family"), every_value(["float32", "bf16"], ["llama", "qwen3"]))
def test_lines_of_the_cpu_engine_have_the_bits_of_the_trainer(tiny_model, family, dtype):
    sizes = tiny.MIXED | {"initializer_range": 0.1}
    policy, rows = policy_of(tiny_model(family, **sizes), "cpu", dtype), rows_of()
    with policy.engine.lines(LENGTH) as lines:
        assert isinstance(lines, NativeLines)
        found = read_in_pieces(lines, rows)
    assert set(differences(policy, rows, found)) == {0.0}


def test_a_prompt_is_shared_as_long_as_one_of_its_lines_is_held(tiny_model):
    policy, prompt = policy_of(tiny_model("qwen3"), "plain"), [5, 6, 7, 8]
    with policy.engine.lines(LENGTH) as lines:
        first = lines.extend({0: prompt})
        lines.extend({0: [9, 10]})
        assert torch.equal(lines.extend({1: prompt}), first)
        assert lines.computed == 6
        lines.drop(0)
        after = lines.extend({1: [9]})
        lines.drop(1)
        lines.extend({2: prompt})
        assert torch.allclose(lines.extend({2: [9]}), after, atol=1e-6)
        assert lines.computed == 6 + 1 + 5


def test_places_of_a_dropped_line_are_used_again(tiny_model):
    policy = policy_of(tiny_model("qwen3"), "plain")
    with policy.engine.lines(LENGTH) as lines:
        for number in range(40):
            lines.extend({number: range(3, 63)})
            lines.extend({number: range(3, 33)})
            lines.drop(number)
        assert lines.pool.room == 1024


def test_a_model_with_a_window_or_a_recurrent_state_has_no_lines(tiny_model):
    for family in ("gemma2", "gemma3"):
        with policy_of(tiny_model(family), "plain").engine.lines(LENGTH) as lines:
            assert lines is None
