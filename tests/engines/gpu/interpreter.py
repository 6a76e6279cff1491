"""Triton's interpreter, in which tests of kernels run without a GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

HAS_TRITON = find_spec("triton") is not None
"""Only CUDA builds of torch bring it."""


def interpret(cases: ModuleType) -> None:
    """Run a module as a program in a process of its own, since Triton reads the variable when it is imported."""
    root = Path(__file__).parents[3]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, cases.__file__], env=environment, check=True)


def mend_the_interpreter() -> None:
    """Triton 3.6's interpreter makes bounds of loops from arrays of one element, which NumPy 2.4 refuses, takes the
    bits of bfloat16 for integers in a product, and has no functions of libdevice."""
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime import interpreter

    patch, builder = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder
    product = builder.create_dot

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def wide(x):
        bits = x.data.astype("uint32") << 16
        return interpreter.TensorHandle(bits.view("float32"), tl.float32) if x.dtype.scalar == tl.bfloat16 else x

    interpreter._patch_lang_tensor = patched
    builder.create_dot = lambda self, a, b, *rest: product(self, wide(a), wide(b), *rest)
    libdevice.tanh = lambda x: tl.tensor(interpreter.TensorHandle(np.tanh(x.handle.data), x.dtype.scalar), x.type)
