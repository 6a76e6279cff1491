"""Memory that was freed and is needed again."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from tutelage.models.memory import keep_freed_memory
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
@pytest.mark.parametrize(("keep", "low", "high"), [("assert keep_freed_memory()", 0.0, 0.3), ("", 0.9, 1.1)])
def test_pages_of_tensors_that_are_freed_together_are_found_once(keep, low, high):
    """The share of the pages of each step that had to be found anew."""
    told = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True, check=True
    )
    assert low <= float(told.stdout) <= high


HELD = """
import torch
from tutelage.models.memory import Stretch
def held():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))
before = held()
stretch = Stretch(24 << 20)
first, second = stretch.take(4, 2 << 20), stretch.take(8 << 20)
assert first.shape == (4, 2 << 20) and first.data_ptr() + first.nbytes == second.data_ptr()
first.fill_(1), second.fill_(2)
assert len(stretch.rest) >= 8 << 20
both = held() - before
del stretch, first
one = held() - before
del second
print(both, one, held() - before)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="what is held is read from /proc")
def test_a_stretch_is_given_back_with_the_last_part_of_it():
    """In MiB, each part of 32: huge pages may reach beyond them."""
    told = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, check=True)
    both, one, none = map(int, told.stdout.split())
    assert 62 <= both <= 70
    assert one == both
    assert none <= 8
