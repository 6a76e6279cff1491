"""The measurement of attention in decoding, rehearsed on a CPU."""

from bench.gpu.attention import TINY, AttentionShape, measure


def test_a_rehearsal_on_a_cpu():
    figures = measure("cpu", repeats=2)
    assert figures["largest difference"] == 0
    assert figures["share"] > 0
    assert figures["bytes"] == 2 * (2 * 20 + 4 * 6) * 2 * 16 * 4 == TINY.read_bytes(4)


def test_the_bytes_of_the_planned_shape():
    """8 prompts of 512 tokens and 64 slots of 256 in bf16, 8 heads of 128: 16.8 MB and 67.1 MB."""
    assert AttentionShape().read_bytes(2) == 16_777_216 + 67_108_864
