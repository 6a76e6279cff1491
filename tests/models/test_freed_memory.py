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
