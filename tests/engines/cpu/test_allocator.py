"""Memory that is freed is reused, and compiled products do not pile up."""

import os
import platform
import subprocess
import sys

import pytest

from tutelage.engines.cpu import allocator as memory
from tutelage.engines.cpu.allocator import Arena, keep_freed_memory, release_freed_memory, workspace
from tutelage.engines.cpu.native.build import multiplies_bf16

MILLION = 1_000_000


FAULTS = """
import resource, torch
from tutelage.engines.cpu.allocator import keep_freed_memory
{keep}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    # what a forward pass leaves for the backward pass, in blocks that glibc by itself always gives back
    kept = [torch.ones(10 << 20) for _ in range(4)]
step(), step()
before = faults()
for _ in range(8):
    step()
print((faults() - before) * resource.getpagesize() / (8 * 4 * 4 * (10 << 20)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked to keep it")
@pytest.mark.parametrize(
    ("keep", "low", "high"),
    [("assert keep_freed_memory()", 0.0, 0.3), pytest.param("", 0.9, 1.1, marks=pytest.mark.long)],
)
def test_pages_of_tensors_that_are_freed_together_are_reused(keep, low, high):
    """The share of the pages of each step that cause page faults."""
    found = subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True, check=True)
    assert low <= float(found.stdout) <= high


HELD = """
import torch
from tutelage.engines.cpu.allocator import Arena, release_freed_memory, keep_freed_memory
def held():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))
{keep}
before = held()
arena = Arena([8 << 20, 8 << 20])
first, second = arena.take(8 << 20), arena.take(8 << 20)
assert first.data_ptr() + first.nbytes == second.data_ptr()
first.fill_(1), second.fill_(2)
both = held() - before
del arena, first
one = held() - before
del second
none = held() - before
release_freed_memory()
print(both, one, none, held() - before)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="what is held is read from /proc")
@pytest.mark.parametrize("keep", ["keep_freed_memory()", pytest.param("", marks=pytest.mark.long)])
def test_an_arena_is_freed_with_its_last_tensor(keep):
    """In MiB, each part of 32: huge pages may reach beyond them. To the system, unless freed memory is kept."""
    found = subprocess.run([sys.executable, "-c", HELD.format(keep=keep)], capture_output=True, text=True, check=True)
    both, one, none, handed_back = map(int, found.stdout.split())
    assert 62 <= both <= 70
    assert one == both
    assert none == both if keep and platform.libc_ver()[0] == "glibc" else none <= 8
    assert handed_back <= 8


@pytest.fixture
def kept():
    """Freed memory is kept, and none is spare."""
    if not keep_freed_memory():
        pytest.skip("only glibc is asked to keep it")
    release_freed_memory()


def place(arena: Arena) -> int:
    return arena.take(1).data_ptr()


def test_the_next_arena_reuses_the_memory_of_the_last(kept):
    first = Arena([MILLION])
    where = place(first)
    second = Arena([MILLION])
    assert place(second) != where
    del first
    assert place(Arena([MILLION // 2, MILLION // 4])) == where


def test_a_spare_mapping_that_is_far_too_large_is_not_reused(kept):
    large = Arena([10 * MILLION])
    large.take(10 * MILLION).fill_(1.0)
    del large
    small = Arena([MILLION])
    assert not memory._spare
    assert len(small.rest) < 10 * MILLION


def test_tensors_of_an_arena_do_not_overlap_and_are_aligned_to_cache_lines():
    sizes = [3, 17, 16, 1]
    arena = Arena(sizes)
    parts = [arena.take(size) for size in sizes]
    for number, part in enumerate(parts):
        part.fill_(number)
    assert [part.tolist() for part in parts] == [[float(n)] * size for n, size in enumerate(sizes)]
    assert all(part.data_ptr() % 64 == 0 for part in parts)


def test_a_workspace_is_used_again_but_by_nobody_else_meanwhile():
    with workspace(MILLION) as first:
        first.fill_(1.0)
        with workspace(10) as second:
            second.fill_(2.0)
        assert bool((first == 1).all())
    with workspace(MILLION) as again:
        assert again.data_ptr() == first.data_ptr()
    with workspace(3 * MILLION) as larger:
        assert len(larger) >= 3 * MILLION


PRODUCTS = """
import ctypes, torch
from tutelage.engines.cpu import allocator as memory
{limit}
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = memory._Heap
x, w = torch.ones(400, 96, dtype=torch.bfloat16), torch.ones(96, 96, dtype=torch.bfloat16)
def multiply(first, end):
    for rows in range(first, end):
        x[:rows] @ w
multiply(1, 200)
before = libc.mallinfo2().used
multiply(200, 400)
print((libc.mallinfo2().used - before) / 200)
"""


@pytest.mark.skipif(not memory._free_heap(), reason="glibc from 2.33 on tells the memory in use")
@pytest.mark.skipif(not multiplies_bf16(), reason="oneDNN compiles no products of bf16 here")
@pytest.mark.parametrize(
    ("limit", "low", "high"),
    [("memory.limit_primitive_caches()", -1e4, 5e4), pytest.param("", 1e5, float("inf"), marks=pytest.mark.long)],
)
def test_products_of_many_shapes_are_not_kept(limit, low, high):
    """The bytes that are kept of a product of another number of rows."""
    code = PRODUCTS.format(limit=limit)
    plain = {name: value for name, value in os.environ.items() if name not in memory.PRIMITIVE_CACHES}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=plain)
    assert low <= float(found.stdout) <= high


def test_a_capacity_of_the_environment_is_left_alone(monkeypatch):
    first, second = memory.PRIMITIVE_CACHES
    monkeypatch.setenv(first, "7")
    monkeypatch.delenv(second, raising=False)
    memory.limit_primitive_caches()
    assert (os.environ[first], os.environ[second]) == ("7", str(memory.PRIMITIVES))


FRAGMENTS = """
import torch
from pathlib import Path
from tutelage.engines.cpu import allocator as memory
memory.MOST_FRAGMENTS = 64 << 20
assert memory.keep_freed_memory()
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / (1 << 20)
def leave(megabytes):
    large, small = [], []
    for _ in range(megabytes):
        large.append(torch.ones(1 << 18)), small.append(torch.ones(1 << 10))
    return small  # between them, so that nothing is at the end of the heap
kept = leave(40)
memory.release_fragments()      # what is usual
kept += leave(30)
before = resident()
memory.release_fragments()      # at most 30 more
same = resident()
kept += leave(200)
grown = resident()
memory.release_fragments()
print(same - before, grown - same, resident() - grown)
"""


@pytest.mark.skipif(not memory._free_heap(), reason="glibc from 2.33 on tells the memory in use")
def test_free_memory_is_returned_once_it_has_grown():
    found = subprocess.run([sys.executable, "-c", FRAGMENTS], capture_output=True, text=True, check=True)
    same, grown, returned = map(float, found.stdout.split())
    assert abs(same) < 1
    assert grown > 100
    assert returned < -grown
