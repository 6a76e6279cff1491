"""What tests need of the machine that compile something."""

import shutil

import pytest

from tutelage.models.native import build

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, build.COMPILERS)), reason="there is no C++ compiler"
)
