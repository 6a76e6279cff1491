"""Reward models and critics: one score for every reader of a folder, and damaged heads are refused."""

import json

import numpy as np
import pytest
import scipy.stats
import tiny
import torch
from offenders import for_each
from peft import PeftModel
from safetensors.torch import load_file, save_file
from tiers import every_value
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rows
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.network import trunk
from tutelage.models import heads
from tutelage.models.heads import ScalarModel, centre, load_reward_model, new_reward_model

CPU = torch.device("cpu")


def words(tokenizer, lengths=((3, 5), (1, 1), (14, 9), (7, 2), (2, 12)), seed=0):
    """Random rows without special tokens, which transformers' own classifiers could take for padding."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count):
        return tuple(torch.randint(10, 299, (count,), generator=generator).tolist())

    rows = [EncodedRow(ids(q), ids(r)) for q, r in lengths]
    return rows, collate(rows, tokenizer.pad_token_id, CPU)


def new(folder, rank=0, seed=0, **settings):
    settings = config.Model(folder, device="cpu", **settings)
    return new_reward_model(settings, config.Lora(rank=rank), seed=seed)


def load(folder, **settings):
    return load_reward_model(config.Model(str(folder), device="cpu", **settings))


def stir(model, by=0.1):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator)


def by_transformers(model, rows, pad=None):
    """The scores of transformers' own classifier: one by one, or padded on the right into one batch."""
    whole = [torch.tensor(row.prompt + row.response) for row in rows]
    with torch.no_grad():
        if pad is None:
            return torch.stack([model(input_ids=ids[None]).logits[0, 0] for ids in whole])
        tokens = torch.nn.utils.rnn.pad_sequence(whole, batch_first=True, padding_value=pad)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(ids) for ids in whole], batch_first=True)
        return model(input_ids=tokens, attention_mask=mask).logits[:, 0]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_equal_rows_are_computed_once_with_the_scores_and_gradients_of_each(tiny_model, family):
    model = new(tiny_model(family), seed=1)
    rows, _ = words(model.tokenizer)
    several = [rows[0], rows[1], rows[0], rows[2], rows[1], rows[0]]
    read = []
    embedding = trunk(model.model).get_input_embeddings()
    embedding.register_forward_hook(lambda module, given, out: read.append(given[0].numel()))

    def taught(parts):
        model.model.zero_grad()
        scores = torch.cat([model.scores(collate(part, model.tokenizer.pad_token_id, CPU)) for part in parts])
        (scores * torch.arange(1.0, 7.0)).sum().backward()
        return scores.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    together = taught([several])
    assert sum(read) <= 3 * max(map(len, several)), "three rows differ"
    alone = taught([[row] for row in several])
    torch.testing.assert_close(together[0], alone[0], rtol=0, atol=1e-5)
    for one, other in zip(together[1], alone[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def same(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("family", "rank"), every_value(tiny.EVERY, (0, 2)))
@torch.no_grad()
def test_transformers_and_tutelage_read_the_same_scores_from_a_folder(tiny_model, tmp_path, family, rank):
    base = tiny_model(family)
    model = new(base, rank)
    stir(model)
    rows, batch = words(model.tokenizer)
    expected = model.scores(batch)
    assert expected.std() > 0.1
    model.save(tmp_path / "checkpoint")
    model.save_whole(tmp_path / "model")
    assert torch.equal(model.scores(batch), expected), "saving changes nothing"

    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", dtype=torch.float32)
    pad = AutoTokenizer.from_pretrained(tmp_path / "model").pad_token_id
    assert pad == whole.config.pad_token_id
    same(by_transformers(whole, rows), expected)
    same(by_transformers(whole, rows, pad), expected)
    same(load(tmp_path / "model").scores(batch), expected)
    same(load(tmp_path / "checkpoint").scores(batch), expected)
    if rank:
        start = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
        start.config.pad_token_id = pad
        if pad == start.config.vocab_size:  # as PEFT asks for where a token was added
            start.resize_token_embeddings(pad + 1)
        same(by_transformers(PeftModel.from_pretrained(start, tmp_path / "checkpoint"), rows), expected)
    else:
        again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "checkpoint", dtype=torch.float32)
        same(by_transformers(again, rows, pad), expected)


@torch.no_grad()
@for_each(tiny.EVERY)
def test_padding_and_other_rows_change_no_score(family, tiny_model):
    model = new(tiny_model(family))
    rows, batch = words(model.tokenizer)
    alone = torch.cat([model.scores(collate([row], 0, CPU)) for row in rows])
    same(model.scores(batch), alone)
    wide = Rows(
        prompt=torch.nn.functional.pad(batch.prompt, (4, 0), value=9),
        prompt_mask=torch.nn.functional.pad(batch.prompt_mask, (4, 0)),
        response=torch.nn.functional.pad(batch.response, (0, 6), value=9),
        mask=torch.nn.functional.pad(batch.mask, (0, 6)),
    )
    same(model.scores(wide), alone)
    same(model.values(wide)[:, :-6], model.values(batch))


@torch.no_grad()
def test_a_value_depends_on_earlier_tokens_only(tiny_model):
    model = new(tiny_model("qwen3"))
    rows, batch = words(model.tokenizer)
    values = model.values(batch)
    assert not values[~batch.mask].any()
    for number, row in enumerate(rows):
        for t in range(len(row.response)):  # the value before token t is the score of what stands there so far
            so_far = collate([EncodedRow(row.prompt[:1], row.prompt[1:] + row.response[:t])], 0, CPU)
            same(values[number, t], model.scores(so_far)[0])


def test_the_head_starts_with_the_published_spread(tmp_path):
    """w ~ N(0, 1/(d+1)): the sum of squares times d + 1 is chi-square with d degrees of freedom."""
    folder = tiny.save("llama", tmp_path / "wide", hidden_size=256, num_hidden_layers=1)
    model = new(folder)
    assert getattr(model.head, "bias", None) is None
    total = float((model.head.weight.detach().double() ** 2).sum()) * 257
    assert scipy.stats.chi2(256).cdf(total) == pytest.approx(0.5, abs=0.498)
    assert scipy.stats.kstest(model.head.weight[0].tolist(), "norm", (0, 257**-0.5)).pvalue > 1e-2
    assert torch.equal(new(folder).head.weight, model.head.weight)
    assert not torch.equal(new(folder, seed=1).head.weight, model.head.weight)


@torch.no_grad()
def test_the_trunk_is_that_of_the_language_model(tiny_model):
    language = AutoModelForCausalLM.from_pretrained(tiny_model("gemma3"), dtype=torch.float32)
    model = new(tiny_model("gemma3"))
    ids = torch.tensor([[20, 30, 40, 50]])
    hidden = language.model(input_ids=ids).last_hidden_state[:, -1]
    same(model.scores(collate([EncodedRow((20, 30), (40, 50))], 0, CPU)), hidden @ model.head.weight[0])


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_pad_token_of_its_own_is_added_and_a_spare_row_is_used_first(tiny_model, tmp_path, family):
    """Where pad and end are one, a classifier of transformers would read the score one token early."""
    assert AutoTokenizer.from_pretrained(tiny_model(family)).pad_token_id in (
        None,
        AutoTokenizer.from_pretrained(tiny_model(family)).eos_token_id,
    )
    model = new(tiny_model(family))
    assert model.tokenizer.pad_token_id == 300
    assert model.model.get_input_embeddings().num_embeddings == 301
    assert not model.model.get_input_embeddings().weight[300].any(), "and not whatever the generator held"
    spare = tiny.save(family, tmp_path / "spare", vocab_size=320)
    assert new(spare).model.get_input_embeddings().num_embeddings == 320


# What must not load -----------------------------------------------------------------------------------------


@pytest.fixture
def saved(tiny_model, tmp_path):
    """A reward model's folder, to be damaged."""
    new(tiny_model("opt")).save(tmp_path / "reward")
    return tmp_path / "reward"


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("what", ["score.weight", "model.decoder.layers.1.fc1.weight"])
def test_a_model_whose_scores_changed_since_it_was_saved_is_refused(saved, what):
    load(saved)

    def change(tensors):
        tensors[what] = tensors[what].flip(0) if len(tensors[what]) > 1 else tensors[what].flip(1)

    rewrite(saved, change)
    with pytest.raises(TutelageError, match="does not score its canned inputs"):
        load(saved)


def test_a_head_that_is_missing_is_refused(saved):
    rewrite(saved, lambda tensors: tensors.pop("score.weight"))
    with pytest.raises(TutelageError, match=r"not a reward model: score.weight would be random"):
        load(saved)


def test_a_head_of_another_width_is_refused(saved):
    rewrite(saved, lambda tensors: tensors.update({"score.weight": torch.zeros(1, 12)}))
    with pytest.raises(TutelageError, match=r"score.weight has the shape \(1, 12\) instead of \(1, 8\)"):
        load(saved)


def test_a_head_of_several_outputs_is_refused(tiny_model, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model("opt"), num_labels=3)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model("opt")).save_pretrained(tmp_path)
    with pytest.raises(TutelageError, match="head of 3 outputs"):
        load(tmp_path)


@pytest.mark.parametrize("family", ["opt", "llama"])
def test_a_language_model_is_no_reward_model(tiny_model, family):
    with pytest.raises(TutelageError, match="not a reward model"):
        load(tiny_model(family))


def test_a_reward_model_is_no_language_model(tiny_model, tmp_path):
    new(tiny_model("llama")).save(tmp_path / "reward")
    with pytest.raises(TutelageError, match=r"is a reward model.*cannot generate text"):
        new(str(tmp_path / "reward"))


@pytest.mark.filterwarnings("error")
def test_an_adapter_is_saved_without_the_embedding_that_has_a_new_row(tiny_model, tmp_path):
    model = new(tiny_model("llama"), rank=2)
    vocabulary = AutoConfig.from_pretrained(tiny_model("llama")).vocab_size
    assert trunk(model.model).get_input_embeddings().num_embeddings == vocabulary + 1
    model.save(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert [name for name in saved if "lora" not in name and "score" not in name] == []


def test_a_second_adapter_is_refused(tiny_model, tmp_path):
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    lora = config.Lora(rank=2)
    Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu"), lora)).save(tmp_path / "adapter")
    with pytest.raises(TutelageError, match="second adapter"):
        new(str(tmp_path / "adapter"), rank=2)
    assert new(str(tmp_path / "adapter")).parameters(), "but all its weights can be trained"


@pytest.mark.parametrize(("lost", "told"), [(False, "canned inputs"), (True, "does not fit")])
def test_the_head_of_an_adapter_is_checked_too(tiny_model, tmp_path, lost, told):
    model = new(tiny_model("llama"), rank=2)
    stir(model)
    model.save(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(file)
    (head,) = [name for name in tensors if "score" in name]
    weight = tensors.pop(head)
    if not lost:
        tensors[head] = -weight
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(TutelageError, match=told):
        load(tmp_path / "adapter")


@torch.no_grad()
def test_bfloat16_scores_are_close(tiny_model, tmp_path):
    model = new(tiny_model("llama"))
    model.save(tmp_path / "reward")
    _, batch = words(model.tokenizer)
    got = load(tmp_path / "reward", dtype="bf16").scores(batch)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, model.scores(batch), rtol=0.05, atol=0.05)


@torch.no_grad()
@for_each([("bf16", "float32"), ("float32", "bf16"), ("bf16", "bf16")])
def test_a_model_is_known_again_in_another_precision(saving, loading, tiny_model, tmp_path, monkeypatch):
    """Scores of a model that was saved in bfloat16 differ by percents from those in float32."""
    model, off = new(tiny_model("llama"), dtype=saving), {}
    fingerprint = ScalarModel.fingerprint

    def rounded(self):
        return [score * off.get(str(self.dtype), 1.0) for score in fingerprint(self)]

    monkeypatch.setattr(ScalarModel, "fingerprint", rounded)
    off["torch.bfloat16"] = 1.03
    model.save(tmp_path)
    load(tmp_path, dtype=loading)
    file = tmp_path / "fingerprint.json"
    known = json.loads(file.read_text())
    assert known["dtype"] == {"bf16": "bfloat16"}.get(saving, saving)
    file.write_text(json.dumps(known | {"scores": [-score for score in known["scores"]]}))
    with pytest.raises(TutelageError, match="does not score its canned inputs"):
        load(tmp_path, dtype=loading)
    file.write_text(json.dumps({"scores": known["scores"]}))
    with pytest.raises(TutelageError, match=r"fingerprint\.json is not in the format"):
        load(tmp_path, dtype=loading)


@pytest.mark.parametrize(("dtype", "close", "far"), [("float32", 1e-4, 0.02), ("bf16", 0.03, 0.4)])
def test_scores_may_differ_from_those_of_transformers_by_rounding_alone(saved, monkeypatch, dtype, close, far):
    """In bfloat16 scores of a chat model differed by 3 % between our forward pass and that of transformers."""
    exact = ScalarModel.scores

    def differ_by(share):
        monkeypatch.setattr(ScalarModel, "scores", lambda self, rows: (1 + share) * (exact(self, rows) + 1) - 1)

    differ_by(close)
    load(saved, dtype=dtype)
    differ_by(far)
    with pytest.raises(TutelageError, match="score"):
        load(saved, dtype=dtype)


def test_canned_inputs_are_of_tokens_from_the_whole_vocabulary():
    """On a row of special tokens, which are often the first, a score in bfloat16 was .6 where it is .08 in float32."""
    tokens = heads._canned_tokens(1, 49152).flatten()
    assert len(set(tokens.tolist())) == len(tokens)
    assert tokens.max() < 49151
    assert tokens.float().std() > 49152 / 5
    assert (tokens < 20).sum() <= 1


# Centring ---------------------------------------------------------------------------------------------------


def states_of(model, batches):
    return torch.cat([model.last_states(rows) for rows in batches]).double().numpy()


@pytest.mark.parametrize("rank", [0, 2])
@torch.no_grad()
def test_centring_is_the_smallest_change_that_makes_the_mean_zero(tiny_model, tmp_path, rank):
    model = new(tiny_model("llama"), rank)
    stir(model)
    rows, _ = words(model.tokenizer, lengths=[(1 + i % 7, 1 + i % 11) for i in range(120)])
    batches = [collate(rows[i : i + 40], 0, CPU) for i in range(0, 120, 40)]
    index = torch.cat([torch.arange(120), torch.arange(30)])  # some rows twice
    states = states_of(model, batches)[index]
    read = torch.from_numpy(states)
    before = model.head.weight[0].double().numpy().copy()
    scores = states @ before
    told_mean, told_disturbance = centre(model, read, ridge=1e-9)
    after = model.head.weight[0].double().numpy()

    assert told_mean == pytest.approx(scores.mean(), rel=1e-5)
    assert (states @ after).mean() == pytest.approx(0.0, abs=1e-5)
    disturbance = (states @ (after - before)).std()
    assert told_disturbance == pytest.approx(disturbance / scores.std(), rel=1e-2)

    # the same problem, solved by elimination: δ = δ₀ + N y with N the directions that leave the mean alone
    mu, centred = states.mean(0), states - states.mean(0)
    special = -scores.mean() * mu / (mu @ mu)
    null = np.linalg.svd(mu[None])[2][1:].T
    y = np.linalg.lstsq(centred @ null, -centred @ special, rcond=None)[0]
    least = (centred @ (special + null @ y)).std()
    assert disturbance == pytest.approx(least, rel=1e-3)
    assert least < (centred @ special).std()

    model.save(tmp_path / "reward")
    loaded = load(tmp_path / "reward")
    assert torch.cat([loaded.scores(rows) for rows in batches])[index].mean() == pytest.approx(0.0, abs=1e-4)


@torch.no_grad()
def test_centring_on_fewer_rows_than_the_width_still_gives_mean_zero(tiny_model):
    model = new(tiny_model("gpt2"))
    rows, batch = words(model.tokenizer, lengths=((3, 4), (2, 6), (5, 5)))
    centre(model, model.last_states(batch))
    assert model.scores(batch).mean() == pytest.approx(0.0, abs=1e-4)
    lone = collate(rows[:1], 0, CPU)
    centre(model, model.last_states(lone))
    assert model.scores(lone)[0] == pytest.approx(0.0, abs=1e-4)


def test_the_fingerprint_is_that_of_the_recorded_inputs(saved):
    """Eight scores, so that another process can compare."""
    told = json.loads((saved / "fingerprint.json").read_text())["scores"]
    assert len(told) == 8
    assert len(set(told)) == 8
    assert load(saved).fingerprint() == pytest.approx(told, abs=1e-5)


@for_each([("bert", "classifier"), ("deberta-v2", "classifier"), ("modernbert", "classifier")])
def test_a_classifier_with_another_head_is_refused_by_name(kind, head, tmp_path):
    """Encoders pool the state of their first token, and read no completion from left to right."""
    speech = tiny.tokenizer(start=True)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    settings = AutoConfig.for_model(
        kind, **sizes, vocab_size=len(speech), num_labels=1, pad_token_id=speech.pad_token_id
    )
    model = AutoModelForSequenceClassification.from_config(settings)
    assert hasattr(model, head)
    model.save_pretrained(tmp_path)
    speech.save_pretrained(tmp_path)
    with pytest.raises(TutelageError, match=type(model).__name__):
        load_reward_model(config.Model(str(tmp_path), device="cpu"))


def test_a_score_that_depends_on_later_rows_or_tokens_is_refused_by_name(tiny_model, monkeypatch):
    """A head of the right name on a transformer that is not causal."""
    model = new(tiny_model("llama"), engine="plain")
    stack, causal = trunk(model.model), type(trunk(model.model)).forward

    def both_ways(self, *inputs, **more):
        output = causal(self, *inputs, **more)
        output.last_hidden_state = output.last_hidden_state + output.last_hidden_state.mean(1, keepdim=True)
        return output

    monkeypatch.setattr(type(stack), "forward", both_ways)
    with pytest.raises(TutelageError, match=r"LlamaForSequenceClassification.*last token"):
        heads._checked(model)
