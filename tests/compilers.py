"""What tests need of the machine that compile something."""

import pytest

from tutelage.errors import TutelageError
from tutelage.models.native import build


def _is_there() -> bool:
    try:
        return bool(build._compiler())
    except TutelageError:
        return False


needs_compiler = pytest.mark.skipif(not _is_there(), reason="there is no C++ compiler")
