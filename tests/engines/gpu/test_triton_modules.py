"""Modules of Triton kernels where there is no Triton."""

import sys

import pytest

from tutelage.base.errors import TutelageError
from tutelage.engines.gpu.triton_modules import triton_kernels


@pytest.mark.parametrize("module", ["head_kernels", "slot_kernels"])
def test_a_missing_triton_is_named(module, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, f"tutelage.engines.gpu.{module}", raising=False)
    with pytest.raises(TutelageError, match="Triton"):
        triton_kernels(module)
