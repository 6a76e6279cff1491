"""Tokens per forward pass: chosen by free memory, given by the user, lowered after out of memory."""

import logging

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen3Config

from tutelage.base.errors import TutelageError
from tutelage.core.rows import EncodedRow, RowList, collate, split_by_length
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.cpu_engine import states_before
from tutelage.engines.plans.token_budget import SHARED_ON_CPU, SMALL
from tutelage.engines.ranks.ranks import Ranks
from tutelage.models import budget as module
from tutelage.models.budget import Budget, automatic_budget, bytes_of_token, out_of_memory

CPU = torch.device("cpu")
GIB = 2.0**30
LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def llama(**changes):
    return AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA | changes)).eval()


# Chosen -----------------------------------------------------------------------------------------------------


def kept_for_the_gradient(model, dtype, tokens):
    """Bytes of the activations that a forward pass over two rows keeps, each storage once."""
    half = tokens // 4
    rows = [EncodedRow(tuple(range(half)), tuple(range(i, i + half))) for i in (1, 2)]
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept = {}

    def keep(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), x)
        return x

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16),
    ):
        states_before(Capabilities(model), collate(rows, 0, CPU))
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "shape",
    [
        LlamaConfig(**LLAMA),
        LlamaConfig(**LLAMA | {"num_key_value_heads": 1, "intermediate_size": 512}),
        Qwen3Config(**LLAMA, head_dim=16, num_key_value_heads=2),
        GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=100, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0),
    ],
    ids=["llama", "grouped", "qwen3", "gpt2"],
)
def test_the_estimate_is_a_little_above_what_is_measured(shape, dtype):
    model = AutoModelForCausalLM.from_config(shape).eval()
    measured = (kept_for_the_gradient(model, dtype, 320) - kept_for_the_gradient(model, dtype, 80)) / 240
    assert 1.05 < bytes_of_token(model, dtype) / measured < 2.0


def chosen(monkeypatch, free, *models, device=CPU, dtype=torch.float32, group=0):
    monkeypatch.setattr(module, "available_memory", lambda device: free)
    return automatic_budget(device, dtype, *models, group=group)


def test_less_memory_and_larger_models_leave_room_for_fewer_tokens(monkeypatch):
    small = llama()
    by_memory = [chosen(monkeypatch, free * GIB, small) for free in (64, 0.3, 0.15, 0.08, 0.02)]
    assert by_memory[0] == 8192, "more were no faster on a processor"
    assert by_memory[-1] == 256, "the least that is tried"
    assert sorted(by_memory, reverse=True) == by_memory
    assert len(set(by_memory)) >= 4
    larger = {"num_hidden_layers": 12}, {"hidden_size": 256}, {"intermediate_size": 2048}
    usual = chosen(monkeypatch, 0.3 * GIB, small)
    assert all(chosen(monkeypatch, 0.3 * GIB, llama(**change)) < usual for change in larger)
    deeper = llama(num_hidden_layers=12)
    both = chosen(monkeypatch, 0.3 * GIB, small, deeper)
    assert both == chosen(monkeypatch, 0.3 * GIB, deeper) < usual, "one after the other: the larger one decides"


def test_the_chosen_tokens_fit_by_the_formula_and_twice_as_many_would_not(monkeypatch):
    model = llama()
    free = 0.3 * GIB
    tokens = chosen(monkeypatch, free, model)
    held = 12 * sum(p.numel() for p in model.parameters()) + 12 * 8192 * 100
    each = 3 * (16 * 64 + 5 * 192) * 4
    assert held + tokens * each <= free / 2 < held + 2 * tokens * each


def test_activations_on_a_processor_take_about_as_much_as_weights_and_optimiser(monkeypatch):
    deep = llama(num_hidden_layers=12, hidden_size=512, intermediate_size=1376)
    weights = sum(p.numel() for p in deep.parameters())
    taken = chosen(monkeypatch, 64 * GIB, deep) * bytes_of_token(deep, torch.float32)
    assert 2**-0.5 <= taken / (16 * weights) <= 2**0.5
    alone = chosen(monkeypatch, 64 * GIB, deep)
    assert chosen(monkeypatch, 64 * GIB, deep.requires_grad_(False)) < alone, "nothing belongs to frozen weights"
    small = llama(num_hidden_layers=12)
    taken = chosen(monkeypatch, 64 * GIB, small) * bytes_of_token(small, torch.float32)
    assert 2**-0.5 <= taken / SMALL <= 2**0.5, "a small model is not cut thin"
    assert chosen(monkeypatch, 64 * GIB, deep, device=torch.device("cuda")) > 8 * alone, "a GPU takes what it has"


def test_a_group_shares_one_pass_where_it_fits(monkeypatch):
    """A frozen model is cut thinnest."""
    deep = llama(num_hidden_layers=30, hidden_size=576, intermediate_size=1536).requires_grad_(False)
    alone = chosen(monkeypatch, 64 * GIB, deep)
    assert alone == SHARED_ON_CPU
    assert chosen(monkeypatch, 64 * GIB, deep, group=400) == alone
    assert chosen(monkeypatch, 64 * GIB, deep, group=792) == 792
    assert chosen(monkeypatch, 64 * GIB, deep, group=5000) == 5000
    assert chosen(monkeypatch, 64 * GIB, deep, group=50_000) == 8192, "the most there are"
    assert chosen(monkeypatch, 1.5 * GIB, deep, group=792) < 792, "the memory decides"
    gpu = torch.device("cuda")
    assert chosen(monkeypatch, 64 * GIB, deep, device=gpu, group=792) == chosen(monkeypatch, 64 * GIB, deep, device=gpu)


def test_frozen_weights_need_no_optimiser_and_bf16_smaller_activations(monkeypatch):
    wide = llama(vocab_size=300_000)
    whole = chosen(monkeypatch, 1.2 * GIB, wide)
    assert chosen(monkeypatch, 1.2 * GIB, wide.requires_grad_(False)) > whole
    small = llama()
    found = [bytes_of_token(small, dtype) for dtype in (torch.float32, torch.bfloat16)]
    assert found[1] / found[0] == 0.625


def test_a_pass_in_bf16_takes_no_more_tokens_than_keep_a_processor_busy(monkeypatch):
    """Smaller activations are memory saved, not more tokens. Weights that are not trained take no fewer than 512, or
    1,024 in bf16, where each pass rounds them."""
    deep = llama(num_hidden_layers=8, hidden_size=512, intermediate_size=3072)
    trained, half = (chosen(monkeypatch, 64 * GIB, deep, dtype=d) for d in (torch.float32, torch.bfloat16))
    assert trained == half == 1024, "by their bytes, 2,048 in bf16"
    assert chosen(monkeypatch, 1.0 * GIB, deep, dtype=torch.bfloat16) < half, "less memory leaves less room"
    deep.requires_grad_(False)
    found = [chosen(monkeypatch, 64 * GIB, deep, dtype=d) for d in (torch.float32, torch.bfloat16)]
    assert found == [512, 1024]


def test_activations_on_a_gpu_may_take_more(monkeypatch):
    assert chosen(monkeypatch, 80 * GIB, llama(), device=torch.device("cuda")) == 131_072


# Dealt to ranks ---------------------------------------------------------------------------------------------


class Deaf(Ranks):
    """One of several ranks that hears nothing of the others."""

    def largest(self, value):
        return value


def test_ranks_get_rows_of_the_same_cost():
    """Long prompts with short responses against the reverse: equal in tokens, a factor of three in operations."""
    rows = RowList(
        [EncodedRow((1,) * 60, (number,) * 4) for number in range(4)]
        + [EncodedRow((1, number), (2,) * 62) for number in range(4)]
    )

    def dealt(cost):
        budgets = [Budget(1 << 12, Deaf(rank, 2), cost=cost) for rank in range(2)]
        return [torch.cat(list(budget.parts(split_by_length, rows))).sort().values for budget in budgets]

    def cost(tokens, answered):
        return tokens + 3.0 * answered

    def loads(parts):
        return [sum(cost(len(rows.items[i]), len(rows.items[i].response)) for i in part) for part in parts]

    by_cost, by_tokens = dealt(cost), dealt(None)
    assert loads(by_cost) == [652.0, 652.0]
    assert [int(rows.rows(part).lengths().sum()) for part in by_tokens] == [256, 256]
    assert loads(by_tokens) == [304.0, 1000.0]
    for parts in (by_cost, by_tokens):
        assert torch.cat(parts).sort().values.tolist() == list(range(8)), "each row once"


# Lowered ----------------------------------------------------------------------------------------------------


def rows_of(lengths):
    """Rows of these lengths."""
    return RowList([EncodedRow((1,), (2,) * (length - 1)) for length in lengths])


class Memory:
    """A pass over rows that fails where a micro-batch takes more than `room` padded tokens."""

    def __init__(self, lengths, tokens, room, **more):
        self.rows, self.room, self.budget = rows_of(lengths), room, Budget(tokens, **more)
        self.attempts = []

    def attempt(self):
        done = []
        self.attempts.append(done)
        for index in self.budget.parts(split_by_length, self.rows):
            if len(index) * int(self.rows.rows(index).lengths().max()) > self.room:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            done.append((index.tolist(), torch.rand(())))
        return done

    def spend(self):
        return self.budget.spend(self.attempt)


def test_the_pass_is_repeated_in_smaller_parts_from_the_same_random_state(caplog):
    memory, never_short = Memory([8] * 8, 64, room=20), Memory([8] * 8, 16, room=20)
    torch.manual_seed(3)
    got = memory.spend()
    torch.manual_seed(3)
    assert got == never_short.spend()
    assert torch.rand(()) == (torch.manual_seed(3), [torch.rand(()) for _ in range(5)])[1][-1]
    assert (memory.budget.tokens, len(memory.attempts)) == (16, 3)
    assert memory.spend() is memory.attempts[-1]
    assert len(memory.attempts) == 4, "what follows keeps the smaller number"
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [
        "Memory ran out with up to 64 tokens at once: retrying with 32, also in later passes.",
        "Memory ran out with up to 32 tokens at once: retrying with 16, also in later passes.",
    ]


def test_a_number_far_above_the_batch_is_lowered_at_once_to_where_it_splits():
    memory = Memory([5, 5, 5], 4096, room=12)
    memory.spend()
    assert memory.budget.tokens == 8
    assert len(memory.attempts) == 2


def test_passes_without_gradients_have_tokens_of_their_own():
    budget, rows = Budget(8, scoring=16), rows_of([4, 4, 4, 4])
    assert [len(part) for part in budget.parts(split_by_length, rows)] == [2, 2]
    with torch.no_grad():
        assert [len(part) for part in budget.parts(split_by_length, rows)] == [4]
    assert Budget(8).scoring == 8


@pytest.mark.parametrize(
    ("room", "tokens", "scoring"), [(20, 8, 16), (9, 8, 8), (5, 4, 4)], ids=["half", "equal", "both"]
)
def test_a_pass_without_gradients_that_is_too_large_lowers_its_own_tokens(room, tokens, scoring):
    memory = Memory([4] * 8, 8, room=room, scoring=32)
    torch.no_grad()(memory.spend)()
    assert (memory.budget.tokens, memory.budget.scoring) == (tokens, scoring)


def test_a_pass_with_gradients_that_is_too_large_lowers_both():
    memory = Memory([4] * 8, 16, room=9, scoring=64)
    memory.spend()
    assert (memory.budget.tokens, memory.budget.scoring) == (8, 32)


def test_a_row_that_never_fits_is_an_error_with_a_remedy():
    memory = Memory([30, 4], 64, room=20)
    with pytest.raises(TutelageError, match=r"single example.*--max-length.*--lora.rank.*smaller model"):
        memory.spend()


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), ValueError("out of memory")])
def test_other_errors_pass_through(error):
    budget = Budget(64)

    def attempt():
        for _ in budget.parts(split_by_length, rows_of([3, 3])):
            raise error

    with pytest.raises(type(error), match=str(error)):
        budget.spend(attempt)
    assert budget.tokens == 64


def test_no_tensor_of_the_failed_attempt_is_alive_when_it_is_repeated():
    """The traceback of an exception holds every local variable, and with them the memory that is short."""
    import weakref

    budget, seen, alive = Budget(64), [], []

    def attempt():
        alive.extend(ref() is not None for ref in seen)
        for index in budget.parts(split_by_length, rows_of([8] * 8)):
            large = torch.zeros(10, requires_grad=True) * 2
            seen.append(weakref.ref(large))
            if len(index) > 4:
                raise torch.OutOfMemoryError

    budget.spend(attempt)
    assert alive == [False]


def test_the_allocators_message_on_a_processor_is_recognised():
    """The allocator itself is asked for more memory than any machine has."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert out_of_memory(caught.value)
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
