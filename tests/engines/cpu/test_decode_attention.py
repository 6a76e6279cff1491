"""Attention over a shared prompt and a row's own response equals attention over their concatenation."""

import pytest
import torch

from tutelage.engines.cpu import prompt_cache
from tutelage.engines.cpu.decode_attention import over_prompt_and_answer
from tutelage.engines.cpu.prompt_cache import PromptCache
from tutelage.engines.packing import prompt_passes

CPU = torch.device("cpu")


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def plainly(query, keys, values, scale):
    """softmax(scale q Kᵀ) V in float64. [w], [S, w], [S, w'] → [w']"""
    shares = (keys.double() @ query.double() * scale).softmax(0)
    return shares @ values.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("lengths", [(7, 7, 7), (3, 7, 5)])
def test_prompt_and_response_share_one_softmax(dtype, queries, lengths):
    prompts, heads, answers, written, width = 3, 2, 4, 5, 8
    query = numbers(prompts, heads, answers, queries, width, dtype=dtype) * 2
    prompt = tuple(numbers(prompts, heads, 7, width, seed=s, dtype=dtype) for s in (1, 2))
    answer = tuple(numbers(prompts, heads, answers, written, width, seed=s, dtype=dtype) for s in (3, 4))
    beyond = torch.arange(7) >= torch.tensor(lengths)[:, None, None]
    hidden = torch.zeros(beyond.shape).masked_fill(beyond, -torch.inf) if len(set(lengths)) > 1 else None
    got = over_prompt_and_answer(query, prompt, answer, hidden, 0.4)
    for p, h, a, q in torch.cartesian_prod(*map(torch.arange, query.shape[:4])).tolist():
        keys, values = (
            torch.cat([shared[p, h, : lengths[p]], own[p, h, a]]) for shared, own in zip(prompt, answer, strict=True)
        )
        expected = plainly(query[p, h, a, q], keys, values, 0.4)
        error = (got[p, h, a, q].double() - expected).abs().max()
        assert error < (1e-6 if dtype == torch.float32 else 0.02)


def attended(monkeypatch, *, move_when, room, leaving):
    """The attention of one layer over six tokens of 4, 2 and 3 responses to three prompts; some finish early."""
    monkeypatch.setattr(prompt_cache, "MOVE_WHEN", move_when)
    monkeypatch.setattr(prompt_cache, "ROOM", room)
    layer, heads, width = torch.nn.Identity(), 2, 4
    lengths, answers = [3, 5, 5], [4, 2, 3]
    store = PromptCache(lengths, answers, 6, dtype=torch.float32, device=CPU)
    passes = list(prompt_passes([range(length) for length in lengths], 8, CPU))
    assert [(prompts.first, prompts.end) for prompts in passes] == [(0, 2), (2, 3)]
    for prompts in passes:
        sizes = (1, heads, len(prompts.packed.tokens), width)
        store.reader(prompts)(layer, *(numbers(*sizes, seed=10 * prompts.first + s) for s in range(3)), None)
    live, seen = torch.arange(9), {}
    for t in range(6):
        everyone = [numbers(9, heads, width, seed=100 * t + s)[live] for s in range(3)]
        places = store.open()
        assert places.tolist() == [([3] * 4 + [5] * 5)[line] + t for line in live.tolist()]
        output = store.attend(layer, *everyone, None)
        seen |= {(t, line): output[row] for row, line in enumerate(live.tolist())}
        going = torch.tensor([i for i, line in enumerate(live.tolist()) if line not in leaving.get(t, ())])
        if len(going) < len(live):
            live = live[going]
            store.keep(going)
    return seen


@pytest.mark.parametrize(
    "leaving", [{0: [1]}, {1: [4, 5]}, {0: [0, 1, 2, 3]}, {1: [0, 8], 2: [5, 6], 3: [1, 2, 3]}], ids=str
)
@pytest.mark.parametrize("move_when", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("room", [1, 2, 64])
def test_finished_responses_do_not_change_the_others(monkeypatch, leaving, move_when, room):
    everyone = attended(monkeypatch, move_when=0.0, room=64, leaving={})
    rest = attended(monkeypatch, move_when=move_when, room=room, leaving=leaving)
    gone = {line: t for t, group in leaving.items() for line in group}
    assert set(rest) == {(t, line) for t, line in everyone if t <= gone.get(line, 6)}
    for key, output in rest.items():
        torch.testing.assert_close(output, everyone[key], rtol=1e-5, atol=1e-6)


def test_rows_are_compacted_only_after_enough_have_finished():
    layer = torch.nn.Identity()
    store = PromptCache([4, 4], [4, 4], 8, dtype=torch.float32, device=CPU)
    (prompts,) = prompt_passes([range(4), range(4)], 8, CPU)
    store.reader(prompts)(layer, *(numbers(1, 1, 8, 2, seed=s) for s in range(3)), None)

    def step():
        store.open()
        store.attend(layer, *(numbers(len(store.place), 1, 2, seed=s) for s in range(3)), None)
        entry = store.layers[layer]
        return [x.data_ptr() for x in (*entry.prompt, *entry.answer)]

    before = step()
    assert step() == before
    store.keep(torch.tensor([0, 2, 3, 4, 5, 6, 7]))  # seven of eight
    assert step() == before
    store.keep(torch.tensor([0, 1, 3, 4, 6]))  # three slots to each prompt would do: six of eight
    after = step()
    assert after[:2] == before[:2], "both prompts are still asked"
    assert after[2:] != before[2:]
    store.keep(torch.tensor([3, 4]))  # the second prompt alone
    assert store.layers[layer].prompt[0].shape[0] == 1
    assert store.layers[layer].answer[0].shape[:3] == (1, 1, 2)
