"""Structs shared by Python and C++: a library that declares one differently is refused."""

import ctypes
import re
from pathlib import Path

import pytest
from compilers import forget_library, needs_compiler

from tutelage.base.errors import TutelageError
from tutelage.engines.cpu.native import bindings, structs
from tutelage.engines.cpu.native.structs import STRUCTS

NATIVE = Path(bindings.__file__).parent
SHORTER = [("panels", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("out", ctypes.c_int64)]
PADDED = [("parallel", ctypes.c_char * 24)]
"""As large as a `ThreadPool`, and aligned to bytes."""


@pytest.fixture(autouse=True)
def library_is_loaded_anew():
    forget_library()
    yield
    forget_library()


def struct_of(name, members):
    return type(name, (ctypes.Structure,), {"_fields_": members})


def declared(file):
    """The names of the structs that a source defines at its top level."""
    return set(re.findall(r"^struct (\w+) \{", (NATIVE / file).read_text(), re.MULTILINE))


@needs_compiler
def test_the_structs_of_both_languages_have_the_same_sizes():
    assert bindings.library().tutelage_step
    for struct in STRUCTS:
        size, alignment = bindings._compiled_layout(bindings.library(), struct)
        assert (size, alignment) == (ctypes.sizeof(struct), ctypes.alignment(struct))
        assert size > 0


@needs_compiler
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            struct_of("Matrix", SHORTER),
            r"struct Matrix of 72 bytes, aligned to 8.* of 24 bytes, aligned to 8",
        ),
        (
            struct_of("ThreadPool", PADDED),
            r"struct ThreadPool of 24 bytes, aligned to 8.*24 bytes, aligned to 1",
        ),
        (struct_of("Unknown", SHORTER), r"struct Unknown of 0 bytes"),
    ],
    ids=["a field less", "another alignment", "only in Python"],
)
def test_a_struct_that_differs_is_refused(wrong, message, monkeypatch, caplog):
    monkeypatch.setattr(
        bindings,
        "STRUCTS",
        [wrong if each.__name__ == wrong.__name__ else each for each in (*STRUCTS, wrong)],
    )
    with pytest.raises(
        TutelageError, match=rf"kernels-\w+\.so have a {message}.*Delete the file.*report"
    ) as error:
        bindings.library()
    assert not bindings.is_available()
    assert str(error.value) in caplog.text


def test_every_struct_that_c_and_python_declare_is_compared():
    in_python = {
        name for name, x in vars(structs).items() if isinstance(x, type) and issubclass(x, ctypes.Structure)
    }
    compared = {struct.__name__ for struct in STRUCTS}
    assert compared == in_python - {"Structure"} == declared("structs.hpp")
    listed = set(re.findall(r"^    LAYOUT\((\w+)\);", (NATIVE / "structs.cpp").read_text(), re.MULTILINE))
    assert listed == compared
