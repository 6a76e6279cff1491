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
torch.ones(1 << 24)
before = faults()
for _ in range(4):
    torch.ones(1 << 24)
print((faults() - before) * resource.getpagesize() / (4 * (1 << 26)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked to keep it")
@pytest.mark.parametrize(("keep", "low", "high"), [("assert keep_freed_memory()", 0.0, 0.05), ("", 0.5, 2.0)])
def test_pages_of_large_tensors_are_found_once(keep, low, high):
    """The share of the pages that had to be found anew, each of four times."""
    told = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True, check=True
    )
    assert low <= float(told.stdout) <= high
