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
    kept = [torch.ones(1 << 21) for _ in range(16)]  # what a forward pass leaves for the backward pass
step(), step()
before = faults()
for _ in range(8):
    step()
print((faults() - before) * resource.getpagesize() / (8 * 16 * (1 << 23)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked to keep it")
@pytest.mark.parametrize(("keep", "low", "high"), [("assert keep_freed_memory()", 0.0, 0.05), ("", 0.5, 2.0)])
def test_pages_of_tensors_that_are_freed_together_are_found_once(keep, low, high):
    """The share of the pages of each step that had to be found anew."""
    told = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True, check=True
    )
    assert low <= float(told.stdout) <= high
