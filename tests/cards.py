"""A GPU that is not there: what torch says of one, for tests of choices, refusals and warnings."""

import sys
import sysconfig
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import torch

GIB = 2**30


def pretend(monkeypatch, tmp_path, *, capability=(9, 0), count=1, total=80, free=79, cuda="13.0", triton=True):
    """Let torch find `count` GPUs of `total` GiB, of which `free` are free, and Triton with all that it needs."""
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: "NVIDIA Test",
        "get_device_properties": lambda device: SimpleNamespace(name="NVIDIA Test", total_memory=total * GIB),
        "mem_get_info": lambda device=None: (free * GIB, total * GIB),
        "set_device": lambda device: None,
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "is_bf16_supported": lambda including_emulation=True: capability >= (8, 0),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("CC", "cc")
    module = ModuleType("triton")
    module.__version__ = "3.7"
    module.__spec__ = ModuleSpec("triton", None)
    if triton:
        monkeypatch.setitem(sys.modules, "triton", module)
