"""The tokens of one forward pass and the rows that are sampled together, from the memory that is left."""

import math

FEWEST = 256
"""Below this many tokens the products are so thin that it is better to try and be told."""
MOST_ON_CPU = 8192
"""More were no faster on a CPU."""
BUSY_ON_CPU = 1024
"""Tokens of a pass on a CPU in bf16, whatever the size of the model. Each pass rounds all weights once: with 134M
weights and an adapter of rank 16, a step of GRPO on 8 groups of 400 tokens took 25.5 s with 512 tokens and 21.9 s with
1,024."""
SHARED_ON_CPU = 512
"""Tokens of a pass on a CPU where they fit into its memory, whatever the size of the model. With fewer, prompts and
completions that rows share are read again in every pass: with 134M weights and an adapter, a step of a reward model on
24 pairs of 16 completions took 8.1 s with 256 tokens, 5.8 s with 512 and 5.4 s with 1,024."""
SCORED_ON_CPU = 4096
"""Tokens of a pass without gradients on a CPU in bf16: with 134M weights and an adapter of rank 16, passes of 760
tokens ran at 237 GFLOP/s, of 1,520 at 294 and of 3,040 at 301. In float32 those of 512 are as fast as any."""
READ_AGAIN = 0.25
"""Tokens of prompts that are read again on a CPU because their completions are split between passes, of all tokens,
at most. With 6.8M weights, a step of GRPO on 2 prompts of 896 tokens with 8 completions of 64 took 3.2 s where two
completions at a time shared a pass, and 1.5 s where all did."""
SMALL = 192 << 20
"""Bytes of activations that the memory of a CPU is not spared, whatever the size of the model."""
MOST_ON_GPU = 131_072
SHARE = 0.5
"""Of the memory that is left, what the estimate may fill: the rest is for what it does not see."""
WHOLE_BYTES, HALF_BYTES = 4.0, 2.5
"""Bytes of an activation in float32, and in bf16 on average, where norms stay in float32."""
CHUNK_ELEMENTS = 1 << 25
"""Logits computed at once, 128 MiB of float32."""
KEPT_ELEMENTS = 2 * CHUNK_ELEMENTS
"""Logits that a pass keeps for its backward pass: those of a pass with more are computed twice."""

KV_BYTES = 1 << 29
"""Bytes for the keys and values of the completions that are sampled at the same time."""
FEWEST_ROWS, MOST_ROWS = 64, 1024
"""Bounds of the rows of a step: with fewer the linear layers wait for their weights, more were no faster on a small
model."""


def tokens_at_once(
    free: float,
    *,
    weights: int,
    trainable: int,
    vocabulary: int,
    each: int,
    half: bool,
    on_cpu: bool,
    group: int = 0,
) -> int:
    """Tokens of one forward and backward pass through models of so many `weights`, one after the other.

    What fits into half of the free memory:

        tokens = (½ · free − 12 · trainable − 2 · weights [bf16] − 12 · C) / each

    `trainable` weights have yet to get a gradient and two moments in float32; in bf16 autocast keeps a copy of all
    weights (the CPU engine keeps none of most models, and has so much more room); C logits, a chunk of them or those of
    all tokens, exist up to three times, or two chunks that are kept and the gradient of one (see `engines.logprobs`);
    `each` is the estimate of `bytes_per_token`. At least `FEWEST`, at most `MOST_ON_CPU` or `MOST_ON_GPU`, and a power
    of two or `group`, so that a little more or less memory gives the same run.

    On a CPU no more than about

        tokens = (4 · weights + 12 · trainable, or `SMALL`, whichever is more) / each in float32,
        and at least `SHARED_ON_CPU`, or `BUSY_ON_CPU` in bf16,
        and at least `group`, the tokens of a prompt with its completions (see `group_tokens`)

    A pass whose activations are as large as weights, gradients and moments keeps the products busy; one of twice the
    tokens was not faster, and would need half as much memory again. In bf16, whose activations are smaller, twice as
    many were no faster either.
    """
    most = MOST_ON_CPU if on_cpu else MOST_ON_GPU
    held = 12 * min(CHUNK_ELEMENTS, most * vocabulary) + 12 * trainable + (2 * weights if half else 0)
    fitting = int(min(max((SHARE * free - held) / each, FEWEST), most))
    tokens = 1 << (fitting.bit_length() - 1)
    if on_cpu:
        in_float32 = each * WHOLE_BYTES / HALF_BYTES if half else each
        enough = max(4 * weights + 12 * trainable, SMALL) / in_float32
        least = BUSY_ON_CPU if half else SHARED_ON_CPU
        tokens = min(tokens, max(least, group, 1 << round(math.log2(enough))))
    return tokens


def scoring_tokens(tokens: int, *, layers: int, half: bool, on_cpu: bool) -> int:
    """Tokens of a pass without gradients, in a run whose passes with gradients have so many `tokens`.

    On a CPU in bf16 up to `SCORED_ON_CPU`: what it keeps are the activations of one layer, at most a quarter of
    what a pass with gradients keeps.
    """
    return max(tokens, min(SCORED_ON_CPU, tokens * layers // 4)) if half and on_cpu else tokens


def group_tokens(prompt: int, responses: int, limit: int) -> int:
    """Tokens of a pass on a CPU through a prompt of P tokens and so many of its n completions of L tokens that the
    prompt is not read again too often:

        P + ⌈n / m⌉ · L        in m = 1 + ⌊`READ_AGAIN` · (P + n · L) / P⌋ passes, but all n up to `BUSY_ON_CPU`
    """
    whole = prompt + responses * limit
    if whole <= BUSY_ON_CPU:
        return whole
    passes = 1 + int(READ_AGAIN * whole / prompt)
    return max(BUSY_ON_CPU, prompt + math.ceil(responses / passes) * limit)


def bytes_per_token(
    layers: int, hidden: int, feed_forward: int, *, half: bool, checkpointing: bool = False
) -> int:
    """Bytes per token that a training pass needs, with room for gradients on their way back:

        layers · (16 · hidden + 5 · feed-forward) · bytes of an activation

    What is kept of them for the backward pass is `Transformer.kept`. With activation checkpointing all of one layer,
    and of the others their inputs.
    """
    layer = 16 * hidden + 5 * feed_forward
    return int(
        (layers * hidden + layer if checkpointing else layers * layer) * (HALF_BYTES if half else WHOLE_BYTES)
    )


def rows_at_once(free: float, *, layers: int, hidden: int, limit: int, itemsize: int) -> int:
    """Rows that are sampled at the same time: those whose keys and values fit into `KV_BYTES`, or a quarter of the free
    memory, assuming that each head has keys of its own. `limit` is the longest completion in tokens."""
    available = min(KV_BYTES, free / 4)
    return int(min(max(available / (2 * layers * hidden * itemsize * limit), FEWEST_ROWS), MOST_ROWS))
