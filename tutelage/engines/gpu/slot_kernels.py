# mypy: ignore-errors
"""Triton kernels of attention in decoding: see `slot_attention`, which launches them and is held against its twin.

A *partial* is the attention of one query over one chunk of keys before normalisation: the maximum m of its scores s,
the sum Σ exp(s − m) and the accumulator Σ exp(s − m) v, all float32. Partials lie as [slot, head, chunk], those of the
prompt before those of the slot's own tokens; an empty one has m = −∞, sum 0 and no accumulator.

Letters: K heads of keys, REP queries to each, WIDTH of a head and COLUMNS, the power of two above it.
"""

import triton
import triton.language as tl


@triton.jit
def write(
    own_k, own_v, key, value, length, k_slot, k_row, k_head, v_slot, v_row, v_head, nk_slot, nk_head, nv_slot, nv_head,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the new key and value of slot and head to position length − 1; nothing where the length is 0."""
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.load(length + slot).to(tl.int64) - 1
    column = tl.arange(0, COLUMNS)
    mask = (column < WIDTH) & (row >= 0)
    new_key = tl.load(key + slot * nk_slot + head * nk_head + column, mask=mask)
    tl.store(own_k + slot * k_slot + row * k_row + head * k_head + column, new_key, mask=mask)
    new_value = tl.load(value + slot * nv_slot + head * nv_head + column, mask=mask)
    tl.store(own_v + slot * v_slot + row * v_row + head * v_head + column, new_value, mask=mask)


@triton.jit
def _partial(
    query, key, value, k_row, v_row, first, last, scale,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The partial of `query` [ROWS, COLUMNS] over the keys first ≤ j < last, of which there is at least one."""
    column = tl.arange(0, COLUMNS)
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    accumulator = tl.zeros([ROWS, COLUMNS], tl.float32)
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
def own_partials(
    query, own_k, own_v, length, maxima, sums, accumulators, scale,
    q_slot, q_head, k_slot, k_row, k_head, v_slot, v_row, v_head, heads, chunks,
    REP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr, TILE: tl.constexpr, BEFORE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Partials of one slot, head of keys and chunk of its own tokens.

    That of the first chunk also empties the BEFORE partials of the prompt: `prompt_partials`, which runs afterwards,
    writes only those with keys, so that a slot without a prompt has none of an earlier step.
    """
    slot, head, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    written = tl.load(length + slot)
    first, last = chunk * CHUNK, tl.minimum(written, (chunk + 1) * CHUNK)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    place = (slot * heads + head * REP + row) * chunks  # of the first partial of each query
    if chunk == 0:
        for start in range(0, BEFORE, BLOCK):
            number = start + tl.arange(0, BLOCK)
            mask = (row < REP)[:, None] & (number < BEFORE)[None, :]
            tl.store(maxima + place[:, None] + number[None, :], float("-inf"), mask=mask)
            tl.store(sums + place[:, None] + number[None, :], 0.0, mask=mask)
    place += BEFORE + chunk
    if first >= last:
        tl.store(maxima + place, float("-inf"), mask=row < REP)
        tl.store(sums + place, 0.0, mask=row < REP)
        return
    mask = (row < REP)[:, None] & (column < WIDTH)[None, :]
    queries = query + slot * q_slot + (head * REP + row)[:, None] * q_head + column[None, :]
    maximum, total, accumulator = _partial(
        tl.load(queries, mask=mask, other=0.0), own_k + slot * k_slot + head * k_head,
        own_v + slot * v_slot + head * v_head, k_row, v_row, first, last, scale, ROWS, WIDTH, COLUMNS, TILE,
    )  # fmt: skip
    tl.store(maxima + place, maximum, mask=row < REP)
    tl.store(sums + place, total, mask=row < REP)
    tl.store(accumulators + place[:, None] * WIDTH + column[None, :], accumulator, mask=mask)


@triton.jit
def prompt_partials(
    query, prompt_k, prompt_v, group_start, group_length, members, maxima, sums, accumulators, scale,
    q_slot, q_head, k_row, k_head, v_row, v_head, heads, chunks,
    REP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr, TILE: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    """Partials of all slots of one group, for one head of keys and chunk of the prompt, which is read once."""
    group, head, chunk = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, last = chunk * CHUNK, tl.minimum(tl.load(group_length + group), (chunk + 1) * CHUNK)
    if first >= last:
        return
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    slot = tl.load(members + group * MEMBERS + row // REP, mask=row < MEMBERS * REP, other=-1).to(tl.int64)
    if tl.max(slot, 0) < 0:
        return
    place = (slot * heads + head * REP + row % REP) * chunks + chunk
    mask = (slot >= 0)[:, None] & (column < WIDTH)[None, :]
    queries = query + slot[:, None] * q_slot + (head * REP + row % REP)[:, None] * q_head + column[None, :]
    start = tl.load(group_start + group).to(tl.int64)
    maximum, total, accumulator = _partial(
        tl.load(queries, mask=mask, other=0.0), prompt_k + start * k_row + head * k_head,
        prompt_v + start * v_row + head * v_head, k_row, v_row, first, last, scale, ROWS, WIDTH, COLUMNS, TILE,
    )  # fmt: skip
    tl.store(maxima + place, maximum, mask=slot >= 0)
    tl.store(sums + place, total, mask=slot >= 0)
    tl.store(accumulators + place[:, None] * WIDTH + column[None, :], accumulator, mask=mask)


@triton.jit
def merge(
    maxima, sums, accumulators, output, o_slot, o_head, heads,
    CHUNKS: tl.constexpr, ALL: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The output of one slot and head from its CHUNKS partials; 0 where all are empty. ALL: the power of two above."""
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, every = tl.arange(0, COLUMNS), tl.arange(0, ALL)
    place = (slot * heads + head) * CHUNKS
    maximum = tl.max(tl.load(maxima + place + every, mask=every < CHUNKS, other=float("-inf")), 0)
    total = tl.zeros([COLUMNS], tl.float32)
    result = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, CHUNKS, BLOCK):
        number = start + tl.arange(0, BLOCK)
        part = tl.load(sums + place + number, mask=number < CHUNKS, other=0.0)
        filled = part != 0  # a sum that is not a number counts
        highest = tl.load(maxima + place + number, mask=number < CHUNKS, other=float("-inf"))
        weight = tl.where(filled, tl.exp(highest - maximum), 0.0)
        mask = filled[:, None] & (column < WIDTH)[None, :]
        parts = tl.load(accumulators + (place + number)[:, None] * WIDTH + column[None, :], mask=mask, other=0.0)
        total += tl.sum(weight * part, 0)
        result += tl.sum(weight[:, None] * parts, 0)
    result = tl.where(total == 0, 0.0, result / total)
    address = output + slot * o_slot + head * o_head + column
    tl.store(address, result.to(output.dtype.element_ty), mask=column < WIDTH)
