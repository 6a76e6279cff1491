"""Cases of compiled functions, for the tests of the engine and of its attention; run as a program, since functions
whose annotations are checked are not compiled."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

TESTS = Path(__file__).parents[2]
GRAPHS = 2 * 6
"""Graphs of the two steps of a layer, with and without adapters: with gradients, without, and on joint matrices in
decoding."""


def run_apart(name: str) -> None:
    """Run a case in a process of its own."""
    paths = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "engines")))
    done = subprocess.run(
        [sys.executable, __file__, name], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]


def steps() -> None:
    """Numbers of compiled steps are those of the reference engine; there is a graph for every combination of adapter
    and gradient, whatever the length."""
    import tiny
    from tiny_training import CPU, some_rows

    from gpu.test_gpu_engine import assert_gradients, assert_rollouts, assert_scores, generated, policy_of, stir
    from tutelage.core.rows import collate
    from tutelage.engines.gpu.gpu_engine import compiled_steps

    torch._dynamo.config.fail_on_recompile_limit_hit = True
    compiled, counted = compiled_steps(), torch._dynamo.utils.counters
    folder = tiny.save("llama", Path(tempfile.mkdtemp()))
    for rank in (0, 2):
        policies = [policy_of(folder, engine, rank) for engine in ("plain", "gpu")]
        for policy in policies:
            policy.freeze_reference()
            stir(policy, seed=2)
        policies[1].engine.steps = compiled
        if policies[1]._reference is not None:
            policies[1]._reference.steps = compiled
        for count in (3, 20, 40):
            rows = collate(some_rows(count), 1, CPU)
            numbers, slopes = [], []
            for policy in policies:
                with torch.no_grad():
                    before = policy.scores(rows).logp
                scores = policy.scores(rows, divergence=1.0)
                policy.model.zero_grad()
                (scores.logp.sum() + scores.divergence.sum()).backward()
                numbers.append([before, scores.logp, scores.divergence])
                slopes.append([p.grad for p in policy.parameters()])
            assert_scores(numbers[1], numbers[0])
            assert_gradients(slopes[1], slopes[0])
        expected, found = generated(policies)
        assert_rollouts(found, expected)
        print("rank", rank, counted["stats"], flush=True)
    assert counted["stats"]["unique_graphs"] == GRAPHS, counted
    assert not counted["graph_break"], counted


def attention() -> None:
    """FlexAttention in blocks is attention with the dense mask, forwards, for which it runs on a CPU; with heads of
    queries that share those of keys."""
    from gpu.test_span_attention import spans_of
    from tutelage.engines.gpu.span_attention import _compiled_flex, _over_heads, block_mask
    from tutelage.engines.packing import visible_tokens

    generator = torch.Generator().manual_seed(0)
    for groups in ([(150, [90, 40, 200]), (3, [5, 7])], [(60, [20, 30])]):
        spans = spans_of(groups)
        tensors = tuple(torch.randn(len(spans.sequence), heads, 16, generator=generator) for heads in (4, 2, 2))
        found = _over_heads(_compiled_flex(), tensors, 0.25, block_mask=block_mask(spans))
        visible = visible_tokens(spans.sequence, spans.prefix)
        expected = _over_heads(scaled_dot_product_attention, tensors, 0.25, attn_mask=visible)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    with torch.no_grad() if sys.argv[1] == "attention" else torch.enable_grad():
        globals()[sys.argv[1]]()
