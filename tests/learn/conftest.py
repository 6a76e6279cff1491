"""Everything here is exact arithmetic on small tensors: float64 throughout."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
