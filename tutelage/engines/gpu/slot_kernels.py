# mypy: ignore-errors
"""Triton kernels of attention in decoding: see `slot_attention`, which launches them and is held against its twin.

A *partial* is the attention of one query over one chunk of keys before normalisation: the maximum m of its scores s,
the sum Σ exp(s − m) and the accumulator Σ exp(s − m) v, all float32. Partials lie as [slot, head, chunk], those of the
prompt before those of the slot's own tokens. Those of chunks without keys are neither written nor read.

Letters: K heads of keys, REP queries to each, WIDTH of a head and COLUMNS, the power of two above it.
"""

import triton
import triton.language as tl


@triton.jit
def _ends(length, CHUNK: tl.constexpr, COUNT: tl.constexpr, ALL: tl.constexpr):
    """How many chunks the first one, two, ... of COUNT lengths have together. ALL: the power of two above COUNT."""
    number = tl.arange(0, ALL)
    return tl.cumsum(tl.cdiv(tl.load(length + number, mask=number < COUNT, other=0), CHUNK), 0)


@triton.jit
def _place(ends, number):
    """The owner of chunk `number`, counted through all owners, and which of its owner's chunks it is."""
    before = ends <= number
    return tl.sum(before.to(tl.int32), 0), number - tl.max(tl.where(before, ends, 0), 0)


@triton.jit
def _partial(
    query, key, value, k_row, v_row, first, last, scale, maximum, total, accumulator,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The partial of `query` [ROWS, COLUMNS] with the keys first ≤ j < last added, if there are any."""
    column = tl.arange(0, COLUMNS)
    for start in range(first, last, TILE):
        row = start + tl.arange(0, TILE)
        inside = row < last
        mask = inside[:, None] & (column < WIDTH)[None, :]
        keys = tl.load(key + row.to(tl.int64)[:, None] * k_row + column[None, :], mask=mask, other=0.0)
        values = tl.load(value + row.to(tl.int64)[:, None] * v_row + column[None, :], mask=mask, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1))
        decay = tl.exp(maximum - highest)
        shares = tl.exp(scores - highest[:, None])
        total = total * decay + tl.sum(shares, 1)
        product = tl.dot(shares.to(values.dtype), values, input_precision="ieee")
        accumulator = accumulator * decay[:, None] + product
        maximum = highest
    return maximum, total, accumulator


@triton.jit
def _prompt_partials(
    query, prompt_k, prompt_v, group_start, group_length, members, maxima, sums, accumulators, scale,
    q_slot, q_head, k_row, k_head, v_row, v_head, group, head, chunk, HEADS: tl.constexpr, CHUNKS: tl.constexpr,
    REP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr, TILE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Partials of all slots of one group, for one head of keys and chunk of the prompt, which is read once."""
    first = chunk * CHUNK
    last = tl.minimum(tl.load(group_length + group), first + CHUNK)
    start = tl.load(group_start + group).to(tl.int64)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    slot = tl.load(members + group * MEMBERS + row // REP, mask=row < MEMBERS * REP, other=-1).to(tl.int64)
    mask = (slot >= 0)[:, None] & (column < WIDTH)[None, :]
    queries = query + slot[:, None] * q_slot + (head * REP + row % REP)[:, None] * q_head + column[None, :]
    maximum, total, accumulator = _partial(
        tl.load(queries, mask=mask, other=0.0), prompt_k + start * k_row + head * k_head,
        prompt_v + start * v_row + head * v_head, k_row, v_row, first, last, scale,
        tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32),
        tl.zeros([ROWS, COLUMNS], tl.float32), WIDTH, COLUMNS, TILE,
    )  # fmt: skip
    place = (slot * HEADS + head * REP + row % REP) * CHUNKS + chunk
    tl.store(maxima + place, maximum, mask=slot >= 0)
    tl.store(sums + place, total, mask=slot >= 0)
    tl.store(accumulators + place[:, None] * WIDTH + column[None, :], accumulator, mask=mask)


@triton.jit
def _own_partials(
    query, key, value, own_k, own_v, length, maxima, sums, accumulators, scale,
    q_slot, q_head, nk_slot, nk_head, nv_slot, nv_head, k_slot, k_row, k_head, v_slot, v_row, v_head,
    slot, head, chunk, HEADS: tl.constexpr, CHUNKS: tl.constexpr, BEFORE: tl.constexpr,
    REP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Partials of one slot, head of keys and chunk of its own tokens, with BEFORE partials of the prompt before them.

    That of the last chunk begins with the new key and value, and writes them to position length − 1.
    """
    first, newest = chunk * CHUNK, tl.load(length + slot) - 1
    end = first + CHUNK
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    mask = (row < REP)[:, None] & (column < WIDTH)[None, :]
    new = (newest < end) & (column < WIDTH)
    queries = query + slot * q_slot + (head * REP + row)[:, None] * q_head + column[None, :]
    queries = tl.load(queries, mask=mask, other=0.0)
    new_key = tl.load(key + slot * nk_slot + head * nk_head + column, mask=new, other=0.0)
    new_value = tl.load(value + slot * nv_slot + head * nv_head + column, mask=new, other=0.0)
    keys, values = own_k + slot * k_slot + head * k_head, own_v + slot * v_slot + head * v_head
    # tiles end before this position, so that no thread reads what another one writes here
    tl.store(keys + newest.to(tl.int64) * k_row + column, new_key, mask=new)
    tl.store(values + newest.to(tl.int64) * v_row + column, new_value, mask=new)
    score = tl.sum(queries.to(tl.float32) * new_key.to(tl.float32)[None, :], 1) * scale
    maximum, total, accumulator = _partial(
        queries, keys, values, k_row, v_row, first, tl.minimum(newest, end), scale,
        tl.where(newest < end, score, float("-inf")), tl.zeros([ROWS], tl.float32) + (newest < end).to(tl.float32),
        tl.zeros([ROWS, COLUMNS], tl.float32) + new_value.to(tl.float32)[None, :], WIDTH, COLUMNS, TILE,
    )  # fmt: skip
    place = (slot * HEADS + head * REP + row) * CHUNKS + BEFORE + chunk
    tl.store(maxima + place, maximum, mask=row < REP)
    tl.store(sums + place, total, mask=row < REP)
    tl.store(accumulators + place[:, None] * WIDTH + column[None, :], accumulator, mask=mask)


@triton.jit
def partials(
    query, key, value, prompt_k, prompt_v, own_k, own_v, group_start, group_length, members, length,
    maxima, sums, accumulators, scale,
    q_slot, q_head, nk_slot, nk_head, nv_slot, nv_head, pk_row, pk_head, pv_row, pv_head,
    ok_slot, ok_row, ok_head, ov_slot, ov_row, ov_head,
    KV_HEADS: tl.constexpr, REP: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    GROUPS: tl.constexpr, ALL_GROUPS: tl.constexpr, MEMBERS: tl.constexpr, PROMPT_ROWS: tl.constexpr,
    SLOTS: tl.constexpr, ALL_SLOTS: tl.constexpr, OWN_ROWS: tl.constexpr,
    PROMPT_CHUNKS: tl.constexpr, PROMPT_CHUNK: tl.constexpr, OWN_CHUNKS: tl.constexpr, OWN_CHUNK: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """The partials of all chunks with keys, those of the prompts first. Programs take chunks in turn: their number
    does not grow with the capacity, and none is started for an empty chunk."""
    prompt_ends = _ends(group_length, PROMPT_CHUNK, GROUPS, ALL_GROUPS)
    own_ends = _ends(length, OWN_CHUNK, SLOTS, ALL_SLOTS)
    prompts = tl.max(prompt_ends, 0)
    every = (prompts + tl.max(own_ends, 0)) * KV_HEADS
    for turn in tl.range(tl.program_id(0), every, tl.num_programs(0), num_stages=1):
        number, head = turn // KV_HEADS, turn % KV_HEADS
        if number < prompts:
            group, chunk = _place(prompt_ends, number)
            _prompt_partials(
                query, prompt_k, prompt_v, group_start, group_length, members, maxima, sums, accumulators, scale,
                q_slot, q_head, pk_row, pk_head, pv_row, pv_head, group, head, chunk,
                KV_HEADS * REP, PROMPT_CHUNKS + OWN_CHUNKS, REP, PROMPT_ROWS, WIDTH, COLUMNS,
                PROMPT_CHUNK, TILE, MEMBERS,
            )  # fmt: skip
        else:
            slot, chunk = _place(own_ends, number - prompts)
            _own_partials(
                query, key, value, own_k, own_v, length, maxima, sums, accumulators, scale,
                q_slot, q_head, nk_slot, nk_head, nv_slot, nv_head, ok_slot, ok_row, ok_head, ov_slot, ov_row, ov_head,
                slot.to(tl.int64), head, chunk, KV_HEADS * REP, PROMPT_CHUNKS + OWN_CHUNKS, PROMPT_CHUNKS,
                REP, OWN_ROWS, WIDTH, COLUMNS, OWN_CHUNK, TILE,
            )  # fmt: skip


@triton.jit
def merge(
    maxima, sums, accumulators, output, group, group_length, length, o_slot, o_head, heads,
    PROMPT_CHUNKS: tl.constexpr, PROMPT_CHUNK: tl.constexpr, OWN_CHUNKS: tl.constexpr, OWN_CHUNK: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The output of one slot and head from the partials of its chunks with keys; 0 where there are none."""
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    own = tl.cdiv(tl.load(length + slot), OWN_CHUNK)
    shared = tl.load(group + slot)
    prompt = tl.cdiv(tl.load(group_length + shared, mask=shared >= 0, other=0), PROMPT_CHUNK)
    column = tl.arange(0, COLUMNS)
    maximum = tl.max(tl.full([BLOCK], float("-inf"), tl.float32), 0)
    total = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    result = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, prompt + own, BLOCK):
        number = start + tl.arange(0, BLOCK)
        valid = number < prompt + own
        chunk = tl.where(number < prompt, number, PROMPT_CHUNKS + number - prompt)
        place = (slot * heads + head) * (PROMPT_CHUNKS + OWN_CHUNKS) + chunk
        highest = tl.load(maxima + place, mask=valid, other=float("-inf"))
        part = tl.load(sums + place, mask=valid, other=0.0)
        mask = valid[:, None] & (column < WIDTH)[None, :]
        parts = tl.load(accumulators + place[:, None] * WIDTH + column[None, :], mask=mask, other=0.0)
        largest = tl.maximum(maximum, tl.max(highest, 0))
        decay, weight = tl.exp(maximum - largest), tl.exp(highest - largest)
        total = total * decay + tl.sum(weight * part, 0)
        result = result * decay + tl.sum(weight[:, None] * parts, 0)
        maximum = largest
    result = tl.where(total == 0, 0.0, result / total)
    address = output + slot * o_slot + head * o_head + column
    tl.store(address, result.to(output.dtype.element_ty), mask=column < WIDTH)
