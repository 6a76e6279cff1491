"""The structs and threads that Python and C++ share: a library that declares a struct differently is refused."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
from compilers import forget_library, needs_compiler

from tutelage.base.errors import TutelageError
from tutelage.engines.cpu.native import bindings, structs
from tutelage.engines.cpu.native.structs import STRUCTS

TASKS = Path("/proc/self/task")
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
        (struct_of("Matrix", SHORTER), r"struct Matrix of 72 bytes, aligned to 8.* of 24 bytes, aligned to 8"),
        (struct_of("ThreadPool", PADDED), r"struct ThreadPool of 24 bytes, aligned to 8.*24 bytes, aligned to 1"),
        (struct_of("Unknown", SHORTER), r"struct Unknown of 0 bytes"),
    ],
    ids=["a field less", "another alignment", "only in Python"],
)
def test_a_struct_that_differs_is_refused(wrong, message, monkeypatch, caplog):
    monkeypatch.setattr(
        bindings, "STRUCTS", [wrong if each.__name__ == wrong.__name__ else each for each in (*STRUCTS, wrong)]
    )
    with pytest.raises(TutelageError, match=rf"kernels-\w+\.so have a {message}.*Delete the file.*report") as error:
        bindings.library()
    assert not bindings.is_available()
    assert str(error.value) in caplog.text


def test_every_struct_that_c_and_python_declare_is_compared():
    in_python = {name for name, x in vars(structs).items() if isinstance(x, type) and issubclass(x, ctypes.Structure)}
    compared = {struct.__name__ for struct in STRUCTS}
    assert compared == in_python - {"Structure"} == declared("structs.hpp")
    listed = set(re.findall(r"^    LAYOUT\((\w+)\);", (NATIVE / "structs.cpp").read_text(), re.MULTILINE))
    assert listed == compared


@needs_compiler
@pytest.mark.skipif(not TASKS.exists(), reason="the system does not show the threads of a process")
def test_the_threads_are_those_of_torch():
    weight, panels = torch.ones(4096, 512), torch.zeros(4096 * 512)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(5)
        weight.exp()
        own = set(TASKS.iterdir())
        pool = bindings.thread_pool()
        pointers = weight.data_ptr(), *weight.shape, panels.data_ptr(), 16 * 512
        bindings.library().tutelage_pack(ctypes.byref(pool), *pointers)
        assert pool.parallel
        assert pool.threads == 5
        assert set(TASKS.iterdir()) == own, "there should be no second pool"
    finally:
        torch.set_num_threads(before)
