"""Training of a process reward model: against float64 by transformers alone, and laws of its loss."""

import copy

import pytest
import torch
from call_templates import TAGGED
from tiers import every_value
from tiny_training import gradients_of

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.records import Message, RatedSteps, ToolCall, user
from tutelage.models.heads import new_reward_model
from tutelage.train.supervised import step_reward
from tutelage.train.supervised.step_reward import encode_rated, labelled_rows, rate, rated_scores, step_figures

ASKED = user("How far is it?")
CALL = Message("assistant", "Let me look.", calls=(ToolCall("map", '{"to": "b"}', "1"),))
RESULT = Message("tool", "3 km", name="map", call_id="1")
SAID, NEXT = Message("assistant", "It is 3 km."), Message("user", "Sure?")
TEXTS = [
    RatedSteps(ASKED, ("It is a.", "So b.", "Thus c."), (1.0, 0.25, 0.0)),
    RatedSteps(user("Why?"), ("So.", "It is hot and far away."), (None, 1.0)),
    RatedSteps(ASKED, ("No.", "Never.", "Not at all."), (0.5, None, None)),
]
TURNS = [
    RatedSteps(ASKED, ((CALL, RESULT), (SAID, NEXT), (SAID,)), (1.0, None, 0.75)),
    RatedSteps(user("Why?"), ((SAID,),), (0.0,)),
]


def model_of(folder, rank=0, **more):
    model = new_reward_model(config.Model(folder, device="cpu", **more), config.Lora(rank=rank), seed=0)
    if rank:
        for name, weight in model.model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(weight.numel()))
    model.tokenizer = copy.deepcopy(model.tokenizer)
    return model


def encoded(model, records, separator="\n", longest=200):
    return encode_rated(records, separator, model.tokenizer, longest)[0]


def batch_of(model, items):
    return labelled_rows(items, pad_token_id(model.tokenizer), model.device)


def by_transformers(model, items):
    """Loss and scores of the rated steps by the classifier's own modules in float64, context by context."""
    double = copy.deepcopy(model.model).double()
    inner = double.get_base_model() if hasattr(double, "get_base_model") else double
    losses, scores = [], []
    for item in items:
        for (context, end), label in zip(item.steps.ends, item.labels, strict=True):
            row = item.steps.contexts[context]
            ids = torch.tensor([[*row.prompt, *row.response[:end]]])
            score = inner(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 0]
            losses.append(-(label * score.sigmoid().log() + (1 - label) * (-score).sigmoid().log()))
            scores.append(score.item())
    return torch.stack(losses).mean(), double, scores


@pytest.mark.parametrize(("rank", "engine", "records"), every_value([0, 2], ["plain", "cpu"], [TEXTS, TURNS]))
def test_loss_and_gradient_are_those_of_transformers_in_float64(tiny_model, records, engine, rank):
    model = model_of(tiny_model("qwen3"), rank, engine=engine)
    model.tokenizer.chat_template = TAGGED
    items = encoded(model, records)
    loss, told = rate(model, batch_of(model, items))
    model.backward(loss)
    got = gradients_of(model)
    truth, double, scores = by_transformers(model, items)
    assert float(loss) == pytest.approx(float(truth), rel=1e-5)
    truth.backward()
    theirs = [p.grad for p in double.parameters() if p.requires_grad]
    scale = max(float(gradient.abs().max()) for gradient in theirs)
    for one, other in zip(got, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-5 * scale)
    labels = [label for item in items for label in item.labels]
    pairs = list(zip(scores, labels, strict=True))
    right = [0.5 if label == 0.5 else float((score > 0) == (label > 0.5)) for score, label in pairs]
    assert float(told["accuracy"]) == pytest.approx(sum(right) / len(right))
    found = [score for row in rated_scores(model, items, 1000) for score in row]
    assert found == pytest.approx(scores, abs=1e-5)


def test_a_score_and_its_gradient_depend_on_nothing_after_the_step(tiny_model):
    model = model_of(tiny_model("llama"))
    one = RatedSteps(ASKED, ("It is a.", "So b."), (1.0, 0.0))
    other = RatedSteps(ASKED, ("It is a.", "Never mind, it is far away."), (1.0, 1.0))
    firsts = [rated_scores(model, encoded(model, [record]), 1000)[0][0] for record in (one, other)]
    assert firsts[0] == pytest.approx(firsts[1], abs=1e-6)
    (item,) = encoded(model, [other])
    rows = batch_of(model, [item])
    model.values(rows)[0, 0].backward()
    (row,), end = item.steps.contexts, item.steps.ends[0][1]
    later = set(row.response[end:]) - set(row.prompt + row.response[:end])
    gradient = model.model.get_input_embeddings().weight.grad
    assert later
    assert not gradient[sorted(later)].any()
    assert gradient[row.response[end - 1]].any()


def test_an_unrated_step_gives_nothing(tiny_model):
    model = model_of(tiny_model("llama"))
    steps = ("It is a.", "So b.", "Thus c.")
    rated = RatedSteps(ASKED, steps[:2], (None, 1.0))
    with_more = RatedSteps(ASKED, steps, (None, 1.0, None))
    one, other = (rate(model, batch_of(model, encoded(model, [record])))[0] for record in (rated, with_more))
    assert torch.equal(one, other)
    (item,) = encoded(model, [with_more])
    assert item.labels == (1.0,)


def test_every_rated_step_counts_the_same_and_parts_of_a_batch_add_up(tiny_model):
    model = model_of(tiny_model("llama"))
    items = encoded(model, TEXTS)
    rows = batch_of(model, items)
    whole, told = rate(model, rows)
    parts = [rate(model, rows.rows(torch.tensor(index))) for index in ([2, 0], [1])]
    assert float(whole) == pytest.approx(float(sum(part for part, _ in parts)), rel=1e-5)
    assert float(told["accuracy"]) == pytest.approx(float(sum(metrics["accuracy"] for _, metrics in parts)))
    each = [float(rate(model, batch_of(model, [item]))[0]) * len(item.labels) for item in items]
    assert float(whole) == pytest.approx(sum(each) / 5, rel=1e-5)
    figures = step_figures(model, items, 30)
    assert figures["loss"] == pytest.approx(float(whole), rel=1e-5)
    assert figures["accuracy"] == pytest.approx(float(told["accuracy"]))


def test_steps_beyond_the_limit_are_cut_counted_and_dropped_without_any(tiny_model):
    model = model_of(tiny_model("llama"))
    (item,) = encoded(model, TEXTS[:1])
    row, ends = item.steps.contexts[0], [end for _, end in item.steps.ends]
    limit = len(row.prompt) + ends[1] + 1
    short, cuts = encode_rated(TEXTS[:1], "\n", model.tokenizer, limit)
    assert short[0].labels == (1.0, 0.25)
    assert (cuts.responses, cuts.dropped) == (1, [])
    other = RatedSteps(user("Why is it so far away from here? " * 9), ("So.",), (1.0,))
    left, cuts = encode_rated([*TEXTS[:1], other], "\n", model.tokenizer, limit)
    assert len(left) == 1
    assert cuts.dropped == ["row 2: no rated step within the limit"]
    with pytest.raises(TutelageError, match="4 tokens"):
        encode_rated(TEXTS, "\n", model.tokenizer, 4)


def test_steps_that_are_encoded_when_they_are_read_are_those_encoded_beforehand(tiny_model, monkeypatch):
    model = model_of(tiny_model("llama"))
    before = encoded(model, TEXTS)
    monkeypatch.setattr(step_reward, "MOST_IN_MEMORY", 1)
    assert list(encoded(model, TEXTS)) == before
