"""Settings that differ from their defaults, by their flags."""

from dataclasses import dataclass, field

from tutelage.base.config.bounds import changed_flags
from tutelage.base.config.sections import Sampling


@dataclass(frozen=True, kw_only=True)
class Both:
    """A setting that is needed, one with a default, and a section."""

    data: str
    batch_size: int = 16
    sampling: Sampling = field(default_factory=Sampling)


def test_only_values_other_than_the_defaults_are_named_and_in_the_order_of_the_question() -> None:
    names = ("sampling", "batch_size")
    assert changed_flags(Both(data="d"), names) == []
    assert changed_flags(Both(data="d", batch_size=16, sampling=Sampling()), names) == []
    assert changed_flags(Both(data="d", batch_size=8, sampling=Sampling(top_k=3)), names) == [
        "--sampling",
        "--batch-size",
    ]
    assert changed_flags(Both(data="d", batch_size=8), ("data", "batch_size")) == ["--data", "--batch-size"]
