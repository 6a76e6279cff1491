"""Models and machines in numbers, for the tests of plans."""

from dataclasses import replace
from typing import Any

from tutelage.engines.plans.hardware import Cluster, Device
from tutelage.engines.plans.workload import BatchShape, SamplingLoad, Transformer, Workload

SMALL = Transformer(
    parameters=1_000_000,
    matrices=700_000,
    head=250_000,
    largest_layer=180_000,
    layers=4,
    hidden=128,
    feed_forward=512,
    attention=128,
    key_values=1024,
    vocabulary=2000,
    adapter=9000,
)
DEVICE = Device("test", memory=8e9, bf16=1e13, float32=1e12, bandwidth=1e11, link=1e10)


def cluster(count: int = 1, per_node: int = 8, **changes: Any) -> Cluster:
    """So many test devices."""
    return Cluster(replace(DEVICE, **changes), count, per_node)


def on_policy(**changes: Any) -> Workload:
    """A step of reinforcement learning with a reference."""
    work = Workload(SMALL, BatchShape(32, 4, 100, 50), sampling=SamplingLoad(50), reference=1.0, has_reference=True)
    return replace(work, **changes)
