"""Cases of attention in decoding, for its tests; run as a program with TRITON_INTERPRET=1, its kernels against the twin
on all of them, where there is no pytest."""

import itertools

import torch

from tutelage.engines.gpu.slot_attention import DecodeAttention, SlotIndices, SlotTensors

PROMPTS = (150, 0, 37, 128)
"""Tokens of each prompt, around the 128 keys of a chunk."""
GROUPS = ((0, (5, 0)), (1, (2,)), (2, (4,)), (0, (1,)), (3, (7,)))
"""Prompt and slots of each group: the first prompt has more slots than a group; slots 3 and 6 are in none."""
LENGTHS = (1, 129, 64, 5, 130, 128, 0, 65)
"""Own tokens of each slot, around the 64 of a chunk: 6 is unused, 3 has no prompt."""
LONGEST = 2200
"""Capacity of a prompt: more partial results than are merged at once, most of them empty."""
CAPACITY = 140
SHAPES = ((2, 1, 64), (4, 2, 80), (6, 2, 96), (2, 2, 128))
"""Heads of queries and of keys, and their width."""
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def numbers(*shape, seed, dtype):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def indices(groups=GROUPS, lengths=LENGTHS, rows=8, most=2):
    """The indices of these groups; the prompts lie in reverse order, with a gap before each."""
    ends = list(itertools.accumulate(reversed(PROMPTS), lambda end, length: end + length + 3, initial=0))[1:]
    starts = [end - length for end, length in zip(reversed(ends), PROMPTS, strict=True)]
    unused = rows - len(groups)
    columns = (
        [starts[prompt] for prompt, _ in groups] + [7] * unused,
        [PROMPTS[prompt] for prompt, _ in groups] + [9] * unused,
        [[*slots, *[-1] * (most - len(slots))] for _, slots in groups] + [[-1] * most] * unused,
        [next((group for group, (_, slots) in enumerate(groups) if slot in slots), -1) for slot in range(len(lengths))],
        lengths,
    )
    return SlotIndices(*(torch.tensor(column, dtype=torch.int32) for column in columns))


def tensors(heads, kv_heads, width, dtype=torch.float32):
    """Query, new key and value; then prompts' and own keys and values, as views of one layer of larger buffers, whose
    unused rows and that of the new token are NaN."""
    query = numbers(len(LENGTHS), heads, width, seed=1, dtype=dtype)
    new = numbers(2, len(LENGTHS), kv_heads, width, seed=4, dtype=dtype)
    prompts = numbers(3, 2, 340, kv_heads, width, seed=2, dtype=dtype)
    own = numbers(2, len(LENGTHS), 3, CAPACITY, kv_heads, width, seed=3, dtype=dtype)
    used, places = torch.zeros(340, dtype=torch.bool), indices()
    for start, length in zip(places.group_start[:5].tolist(), places.group_length[:5].tolist(), strict=True):
        used[start : start + length] = True
    prompts[:, :, ~used] = torch.nan
    for slot, length in enumerate(LENGTHS):
        own[:, slot, :, max(length - 1, 0) :] = torch.nan
    return SlotTensors(query, *new, prompts[1, 0], prompts[1, 1], own[0, :, 1], own[1, :, 1])


def attention(heads, kv_heads, width, dtype=torch.float32, device="cpu"):
    """The attention of these cases, whose memory is NaN."""
    made = DecodeAttention(len(LENGTHS), heads, kv_heads, width, LONGEST, CAPACITY, torch.device(device), dtype)
    for buffer in (made.maxima, made.sums, made.accumulators, made.output):
        buffer.fill_(torch.nan)
    return made


def assert_independent(attend, heads, kv_heads, width):
    """Each slot's output stays the same, bit by bit, when the data of all others are replaced, and when they
    are unused and the slot's group lies elsewhere."""
    given = tensors(heads, kv_heads, width)
    before = attend(given, indices(), 0.3).clone()
    for group, (prompt, slots) in enumerate(GROUPS):
        for place, slot in enumerate(slots):
            replaced = [x.nan_to_num() * -2 for x in given]
            start, length = indices().group_start[group], indices().group_length[group]
            for number, (now, was) in enumerate(zip(replaced, given, strict=True)):
                rows = slice(start, start + length) if number in (3, 4) else slot  # of the prompts, else of the slot
                now[rows] = was[rows]
            assert torch.equal(attend(SlotTensors(*replaced), indices(), 0.3)[slot], before[slot])
            alone = [length if other == slot else 0 for other, length in enumerate(LENGTHS)]
            kept = (prompt, tuple(slot if x == place else -1 for x in range(2)))
            sole = indices((GROUPS[1], kept)[group != 1 :], alone)
            assert torch.equal(attend(given, sole, 0.3)[slot], before[slot])


def kernels_equal_their_twins() -> None:
    for (heads, kv_heads, width), dtype in itertools.product(SHAPES, TOLERANCE):
        made = attention(heads, kv_heads, width, dtype)
        # the same memory again, with fewer groups and slots: nothing of the earlier step is left
        few = [length if slot % 2 else 0 for slot, length in enumerate(LENGTHS)]
        for places in (indices(), indices(GROUPS[2:3]), indices(GROUPS[:2], few)):
            ours, twins = (tensors(heads, kv_heads, width, dtype) for _ in range(2))
            got, expected = made.launch(ours, places, 0.3), made(twins, places, 0.3)
            torch.testing.assert_close(got, expected, rtol=0, atol=TOLERANCE[dtype])
            for one, other in zip(ours, twins, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        print(heads, kv_heads, width, dtype, "equal", flush=True)
    made = attention(4, 2, 80)
    assert_independent(made.launch, 4, 2, 80)
    before = made.launch(tensors(4, 2, 80), indices(), 0.3).clone()
    for made.programs in (1, 7, 100):
        assert torch.equal(made.launch(tensors(4, 2, 80), indices(), 0.3), before)
    print("independent of other slots and of the number of programs")


if __name__ == "__main__":
    from interpreter import mend_the_interpreter

    mend_the_interpreter()
    kernels_equal_their_twins()
