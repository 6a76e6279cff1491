"""Checks, where a wheel is installed, that it brings kernels for this processor: `python tests/prebuilt.py`.

cibuildwheel runs it on every wheel. It needs neither torch nor a compiler: the library is loaded, and its structs are
compared with those of Python.
"""

from ctypes import CDLL, alignment, byref, c_int64, sizeof

from tutelage.engines.cpu.native import build
from tutelage.engines.cpu.native.structs import STRUCTS


def main() -> None:
    """Load the library and compare. Raises AssertionError where it is not that of the wheel or does not fit."""
    path = build.built()
    assert path.parent == build.PREBUILT, f"{path} does not come from the wheel"
    library = CDLL(str(path))
    for struct in STRUCTS:
        size, aligned = c_int64(0), c_int64(0)
        assert library.tutelage_struct_layout(struct.__name__.encode(), byref(size), byref(aligned)) == 1
        assert (size.value, aligned.value) == (sizeof(struct), alignment(struct)), struct.__name__
    print(f"{path.name}: {len(STRUCTS)} structs agree")


if __name__ == "__main__":
    main()
