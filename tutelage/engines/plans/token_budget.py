"""Tokens per forward pass and rows sampled at once, from available memory."""

import math

FEWEST = 256
"""Minimum tokens of a pass. With fewer, products are inefficient, so running out of memory is preferred."""
MOST_ON_CPU = 8192
"""Maximum tokens of a pass on a CPU; more were no faster."""
BUSY_ON_CPU = 1024
"""Tokens of a pass on a CPU in bf16, whatever the size of the model. Each pass rounds all weights once: with 134M
weights and an adapter of rank 16, a step of GRPO on 8 groups of 400 tokens took 25.5 s with 512 tokens and 21.9 s with
1,024."""
SHARED_ON_CPU = 512
"""Tokens of a pass on a CPU, if they fit into memory, for models of any size. With fewer, prompts and completions
shared by rows are read again in every pass: with 134M weights and an adapter, a step of a reward model on 24 pairs of
16 completions took 8.1 s with 256 tokens, 5.8 s with 512 and 5.4 s with 1,024."""
SCORED_ON_CPU = 4096
"""Tokens of a pass without gradients on a CPU in bf16: with 134M weights and an adapter of rank 16, passes of 760
tokens ran at 237 GFLOP/s, of 1,520 at 294 and of 3,040 at 301. In float32 those of 512 are as fast as any."""
READ_AGAIN = 0.25
"""Maximum share of prompt tokens read again on a CPU because completions are split between passes. With 6.8M weights, a
step of GRPO on 2 prompts of 896 tokens with 8 completions of 64 took 3.2 s where two completions at a time shared a
pass, and 1.5 s where all did."""
SMALL = 192 << 20
"""Bytes of activations always allowed on a CPU, for models of any size."""
MOST_ON_GPU = 131_072
SHARE = 0.5
"""Share of available memory used by the estimate; the rest is a margin."""
WHOLE_BYTES, HALF_BYTES = 4.0, 2.5
"""Bytes per activation in float32, and on average in bf16, where norms stay in float32."""
CHUNK_ELEMENTS = 1 << 25
"""Logits computed at once, 128 MiB of float32."""
KEPT_ELEMENTS = 2 * CHUNK_ELEMENTS
"""Maximum logits saved for the backward pass; a pass with more recomputes them."""

KV_BYTES = 1 << 29
"""Bytes for keys and values of the completions sampled at once."""
SLOTS = (16, 64, 256)
"""Completions that the GPU engine samples at once, which is the number of slots of its captured graph."""
GROUP = 16
"""Slots for which its decoding reads a prompt's keys and values once."""
HEAD_ELEMENTS = 1 << 27
"""Logits that its head computes at once, those of a reference included, 512 MiB of float32, and recomputes in the
backward pass."""
FEWEST_ROWS, MOST_ROWS = 64, 1024
"""Bounds on the rows of a decoding step: with fewer, linear layers are bound by reading weights; more were no faster on
a small model."""


def tokens_at_once(
    free: float, *, weights: int, trainable: int, vocabulary: int, each: int, half: bool, on_cpu: bool, group: int = 0
) -> int:
    """Tokens of one forward and backward pass through models with `weights` weights, one after another.

    The number that fits into half of the free memory:

        tokens = (½ · free − 12 · trainable − 2 · weights [bf16] − 12 · C) / each

    `trainable` weights will need a gradient and two moments in float32; in bf16, autocast keeps a copy of all weights
    (the CPU engine avoids it for most models); C logits, of one chunk or of all tokens, exist up to three times, or as
    two saved chunks and the gradient of one (see `engines.logprobs`); `each` is the estimate of `bytes_per_token`. The
    result is at least `FEWEST`, at most `MOST_ON_CPU` or `MOST_ON_GPU`, and a power of two or `group`, so that small
    differences in memory do not change the run.

    On a CPU at most about

        tokens = (4 · weights + 12 · trainable, or `SMALL`, whichever is more) / each in float32,
        and at least `SHARED_ON_CPU`, or `BUSY_ON_CPU` in bf16,
        and at least `group`, the tokens of a prompt with its completions (see `group_tokens`)

    Products are efficient once activations are as large as weights, gradients and moments; twice the tokens was not
    faster and would need 50 % more memory. In bf16, with smaller activations, twice the tokens was not faster either.
    """
    most = MOST_ON_CPU if on_cpu else MOST_ON_GPU
    fixed = 12 * min(CHUNK_ELEMENTS, most * vocabulary) + 12 * trainable + (2 * weights if half else 0)
    fitting = int(min(max((SHARE * free - fixed) / each, FEWEST), most))
    tokens = 1 << (fitting.bit_length() - 1)
    if on_cpu:
        in_float32 = each * WHOLE_BYTES / HALF_BYTES if half else each
        enough = max(4 * weights + 12 * trainable, SMALL) / in_float32
        least = BUSY_ON_CPU if half else SHARED_ON_CPU
        tokens = min(tokens, max(least, group, 1 << round(math.log2(enough))))
    return tokens


def scoring_tokens(tokens: int, *, layers: int, half: bool, on_cpu: bool) -> int:
    """Tokens of a pass without gradients, in a run whose passes with gradients have `tokens` tokens.

    On a CPU in bf16, up to `SCORED_ON_CPU`, since it keeps the activations of one layer: at most a quarter of the
    memory of a pass with gradients.
    """
    return max(tokens, min(SCORED_ON_CPU, tokens * layers // 4)) if half and on_cpu else tokens


def group_tokens(prompt: int, responses: int, limit: int) -> int:
    """Tokens of a pass on a CPU through a prompt of P tokens and enough of its n completions of L tokens that the
    prompt is not read again too often:

        P + ⌈n / m⌉ · L        in m = 1 + ⌊`READ_AGAIN` · (P + n · L) / P⌋ passes, but all n up to `BUSY_ON_CPU`
    """
    whole = prompt + responses * limit
    if whole <= BUSY_ON_CPU:
        return whole
    passes = 1 + int(READ_AGAIN * whole / prompt)
    return max(BUSY_ON_CPU, prompt + math.ceil(responses / passes) * limit)


def bytes_per_token(layers: int, hidden: int, feed_forward: int, *, half: bool, checkpointing: bool = False) -> int:
    """Bytes per token of a training pass, including activation gradients:

        layers · (16 · hidden + 5 · feed-forward) · bytes of an activation

    `Transformer.kept` of them are saved for the backward pass. With activation checkpointing: all of one layer, and the
    inputs of the others.
    """
    layer = 16 * hidden + 5 * feed_forward
    return int((layers * hidden + layer if checkpointing else layers * layer) * (HALF_BYTES if half else WHOLE_BYTES))


def rows_at_once(free: float, *, layers: int, hidden: int, limit: int, itemsize: int) -> int:
    """Rows sampled at once: as many as have keys and values within `KV_BYTES` or a quarter of the free memory, assuming
    no grouped queries. `limit` is the longest completion in tokens."""
    available = min(KV_BYTES, free / 4)
    return int(min(max(available / (2 * layers * hidden * itemsize * limit), FEWEST_ROWS), MOST_ROWS))


def tokens_kept(free: float, *, layers: int, width: int, itemsize: int) -> int:
    """Tokens whose keys and values are kept between the turns of episodes: a quarter of the free memory, since buffers
    grow by doubling. `width` is that of all heads of keys."""
    return max(1, int(free / 4 / (2 * max(1, layers) * max(1, width) * itemsize)))
