"""The table of GPUs, and clusters."""

import pytest

from tutelage.base.errors import TutelageError
from tutelage.engines.plans.hardware import GPUS, Cluster, gpu_named

from .sizes import DEVICE, cluster


def test_every_gpu_has_its_source_and_rates_in_the_right_units():
    for name, gpu in GPUS.items():
        assert gpu.name == name
        assert gpu.source
        assert 20e9 <= gpu.memory <= 300e9
        assert 1e14 <= gpu.bf16 <= 3e15
        assert gpu.float32 < gpu.bf16
        assert 2e11 <= gpu.bandwidth <= 1e13
        assert gpu.link < gpu.bandwidth


def test_an_unknown_gpu_is_refused_with_the_nearest_name():
    assert gpu_named("H100") is GPUS["h100"]
    with pytest.raises(TutelageError, match=r"no GPU 'a100'; did you mean 'a100-80' or 'a100-40'\?.*b200, h200"):
        gpu_named("a100")
    with pytest.raises(TutelageError, match="--gpus 0"):
        Cluster(DEVICE, 0)


def test_collectives_within_a_node_use_its_links():
    sixteen = cluster(16, per_node=8, link=1e12)
    assert sixteen.link(8) == pytest.approx(0.7e12)
    assert sixteen.link(16) == pytest.approx(0.7 * 8 * sixteen.network)
    assert cluster(16, per_node=8, link=1e9).link(16) == pytest.approx(0.7e9)  # no faster than within a node
    assert sixteen.in_node == 8
