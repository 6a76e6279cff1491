"""Log-probabilities of prompts against those of the policy."""

from itertools import product

import pytest
import torch
from offenders import for_each

from tutelage.commands.loading import load_policy
from tutelage.core.rows import EncodedRow, collate
from tutelage.rollout.serving import jobs as scoring
from tutelage.rollout.serving.jobs import Scoring

PROMPTS = [(40, 41, 42), (9, 60, 61, 62, 63, 64), (7,), (40, 41, 43, 44)]


@for_each(product([1 << 25, 1], ["llama", "gpt2"]))
def test_tokens_of_prompts_have_the_log_probabilities_of_the_policy(chunk, family, tiny_model, monkeypatch):
    monkeypatch.setattr(scoring, "CHUNK_ELEMENTS", chunk)
    policy = load_policy(tiny_model(family), device="cpu")
    found = scoring.score(policy, [Scoring(prompt, top) for prompt, top in zip(PROMPTS, (0, 2, 3, 1), strict=True)])
    assert found[2] == (), "nothing comes before the first token"
    for prompt, tokens, top in zip(PROMPTS, found, (0, 2, 3, 1), strict=True):
        assert tuple(token.token for token in tokens) == prompt[1:]
        for place in range(1, len(prompt)):
            rows = collate([EncodedRow(prompt[:place], (token,)) for token in range(20)], 0, policy.device)
            with torch.no_grad():
                logp = policy.logits(rows.rows(torch.tensor([0]))).log_softmax(-1)[0]
            token = tokens[place - 1]
            assert token.logp == pytest.approx(float(logp[prompt[place]]), abs=1e-5)
            best = logp.topk(top)
            assert list(token.top) == best.indices.tolist()
            assert list(token.top.values()) == pytest.approx(best.values.tolist(), abs=1e-5)
