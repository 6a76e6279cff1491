"""Which library is used: one that came with the package where it fits, or else one that is compiled here."""

import ctypes
import os
import subprocess
import sys
import sysconfig
from itertools import pairwise
from pathlib import Path

import pytest
from compilers import forget_library, needs_compiler

from tutelage.base.errors import TutelageError
from tutelage.engines.cpu.native import bindings, build
from tutelage.engines.cpu.native.build import TARGETS, Target

FASTER = Target("faster", "-O2", frozenset({"avx2", "avx512f"}))
SLOWER = Target("slower", "-O1", frozenset({"avx2"}))
ROOT = Path(__file__).parents[4]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one small source with a library for each of two targets. Compiling gives `tmp_path/compiled`."""
    source = tmp_path / "answer.cpp"
    source.write_text('extern "C" int answer() { return 42; }')
    monkeypatch.setattr(build, "SOURCES", [source])
    monkeypatch.setattr(build, "PREBUILT", tmp_path / "prebuilt")
    monkeypatch.setattr(build, "targets", lambda: (FASTER, SLOWER))
    monkeypatch.setattr(build, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(build, "folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(build, "_compiler", lambda: [sys.executable])  # of any version
    monkeypatch.setattr(build, "_compile", lambda command, target: None)
    monkeypatch.delenv("CXX", raising=False)
    build.PREBUILT.mkdir()
    for target in (FASTER, SLOWER):
        (build.PREBUILT / build.prebuilt_name(target)).touch()
    return source


def processor(flags):
    build.CPUINFO.write_text(f"processor : 0\nflags\t\t: {flags}\nbugs : none\n")


def name_of(path):
    return path.name.split("-")[1] if path.parent == build.PREBUILT else "compiled"


@pytest.mark.parametrize(
    ("flags", "used"),
    [
        ("fpu avx2 avx512f", "faster"),
        ("fpu avx2", "slower"),
        ("fpu avx512f", "compiled"),  # AVX-512 without AVX2 is no processor that exists
        ("fpu avx", "compiled"),
        ("", "compiled"),
    ],
)
def test_the_fastest_library_that_the_processor_can_run_is_used(package, flags, used):
    processor(flags)
    assert name_of(build.built()) == used


def test_a_library_of_other_sources_is_not_used(package):
    processor("avx2 avx512f")
    (build.PREBUILT / build.prebuilt_name(FASTER)).unlink()
    assert name_of(build.built()) == "slower"
    package.write_text('extern "C" int answer() { return 43; }')
    assert name_of(build.built()) == "compiled"


def test_a_header_counts_as_source_and_flags_count(package, monkeypatch):
    before = build.prebuilt_name(FASTER)
    (package.parent / "more.hpp").write_text("// a header")
    with_header = build.prebuilt_name(FASTER)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    assert len({before, with_header, build.prebuilt_name(FASTER)}) == 3


def test_a_compiler_that_is_named_compiles(package, monkeypatch):
    processor("avx2 avx512f")
    monkeypatch.setenv("CXX", "g++")
    assert name_of(build.built()) == "compiled"


def test_a_checkout_without_libraries_compiles(package, monkeypatch):
    processor("avx2 avx512f")
    monkeypatch.setattr(build, "PREBUILT", package.parent / "none")
    assert name_of(build.built()) == "compiled"


def test_a_slower_target_needs_less():
    """So the first that fits is the fastest, and whoever can run one can run all that follow."""
    for targets in TARGETS.values():
        assert all(one.needs > other.needs for one, other in pairwise(targets))
        assert len({target.name for target in targets}) == len(targets)


@needs_compiler
def test_the_hook_puts_a_library_for_every_target_into_the_wheel(tmp_path, monkeypatch):
    pytest.importorskip("hatchling", reason="the hook is one of hatchling's")
    monkeypatch.syspath_prepend(str(ROOT))
    from hatch_build import KernelsHook

    source = tmp_path / "answer.cpp"
    source.write_text('extern "C" int answer() { return 42; }')
    monkeypatch.setattr(build, "SOURCES", [source])
    monkeypatch.setattr(build, "targets", lambda: (SLOWER, FASTER))
    data = {"force_include": {}}
    hook = KernelsHook(str(ROOT), {}, None, None, str(tmp_path), "wheel")
    hook.initialize("standard", data)
    assert set(data["force_include"].values()) == {
        f"tutelage/engines/cpu/native/prebuilt/{build.prebuilt_name(target)}" for target in (SLOWER, FASTER)
    }
    assert {ctypes.CDLL(path).answer() for path in data["force_include"]} == {42}
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert (data["tag"], data["pure_python"]) == (f"py3-none-{platform}", False)
    hook.finalize("standard", data, "")
    assert not any(Path(path).exists() for path in data["force_include"])
    sys.modules.pop("hatch_build")


@pytest.mark.parametrize(("target", "version"), [("sdist", "standard"), ("wheel", "editable")])
def test_only_a_wheel_gets_libraries(target, version, monkeypatch):
    pytest.importorskip("hatchling", reason="the hook is one of hatchling's")
    monkeypatch.syspath_prepend(str(ROOT))
    from hatch_build import KernelsHook

    data = {"force_include": {}}
    KernelsHook(str(ROOT), {}, None, None, "", target).initialize(version, data)
    assert data == {"force_include": {}}
    sys.modules.pop("hatch_build")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", True),
        ("flags\t\t: fpu avx2 amx_bf16", True),
        ("flags\t\t: fpu avx2 avx512f", False),
        ("Features\t: fp asimd bf16", True),
        ("Features\t: fp asimd", False),
        ("", True),
    ],
)
def test_which_processors_multiply_bf16(line, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "CPUINFO", tmp_path / "cpuinfo")
    build.CPUINFO.write_text(line + "\n")
    build.multiplies_bf16.cache_clear()
    assert build.multiplies_bf16() == expected
    build.multiplies_bf16.cache_clear()


# The compiler ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def never_built():
    forget_library()
    yield
    forget_library()


@needs_compiler
def test_of_two_processes_at_once_one_compiles(tmp_path):
    """Two small sources take the place of the library's, whose compilation takes 13 seconds of a processor."""
    sources = [tmp_path / name for name in ("step.cpp", "more.cpp")]
    for source in sources:
        source.write_text(f'extern "C" int tutelage_{source.stem}() {{ return 1; }}')
    compiler, calls = tmp_path / "compiler", tmp_path / "calls"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {build._compiler()[0]} "$@"\n')
    compiler.chmod(0o755)
    code = f"import runpy, pathlib; made = runpy.run_path({build.__file__!r}); "
    code += f"made['SOURCES'][:] = map(pathlib.Path, {list(map(str, sources))!r}); print(made['built']())"
    given = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": str(compiler)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=given, stdout=subprocess.PIPE) for _ in range(2)]
    found = {process.communicate()[0].decode().strip() for process in both}
    assert len(found) == 1
    assert [str(path) for path in (tmp_path / "tutelage").iterdir()] == [*found]
    library = ctypes.CDLL(found.pop())
    assert library.tutelage_step() == library.tutelage_more() == 1
    assert sum(" -c " in line for line in calls.read_text().splitlines()) == len(sources)


@needs_compiler
def test_a_library_that_exists_is_not_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SOURCES", [tmp_path / "step.cpp"])
    build.SOURCES[0].write_text('extern "C" int answer() { return 1; }')
    first = build.built()
    monkeypatch.setattr(build, "_compile", lambda *given: pytest.fail("compiled again"))
    assert build.built() == first
    build.SOURCES[0].write_text('extern "C" int answer() { return 2; }')
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        build.built()


@needs_compiler
def test_the_error_holds_the_output_of_the_compiler(tmp_path, monkeypatch, never_built):
    monkeypatch.setattr(build, "SOURCES", [tmp_path / "step.cpp"])
    build.SOURCES[0].write_text("int answer( { }")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(TutelageError, match=r"could not be compiled: .*error: "):
        bindings.library()
    assert not list((tmp_path / "tutelage").iterdir())


@needs_compiler
def test_a_cache_that_cannot_be_written_to_is_named(tmp_path, monkeypatch, never_built):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(TutelageError, match=r"cannot be written to .*file"):
        bindings.library()
