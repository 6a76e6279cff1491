"""Prints the option with which pip takes torch's build for CPUs, where that is the right one. For the Makefile.

    pip install $(python scripts/torch_index.py) -e ".[dev]"

On Linux PyPI's torch is the build for CUDA. A machine without a GPU takes the build of PyTorch's own index instead, if
that index can be reached, and else what pip finds by itself. What is going to happen is said on stderr, with its size.
Words of the command line are options that pip gets anyway: an index among them settles the matter. `--cpu`, which pip
does not get, asks for the build for CPUs on a machine with a GPU too.
"""

import shutil
import sys
import urllib.request
from pathlib import Path

INDEX = "https://download.pytorch.org/whl/cpu"
DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/usr/lib/wsl/lib/nvidia-smi")
"""Files that show a GPU of NVIDIA, of AMD, of NVIDIA under WSL."""
SECONDS = 5.0
PROCESSORS, CUDA = "200 MB", "3 GB"
"""What each build of torch downloads, about, with what it needs."""


def option(given: list[str]) -> tuple[str, str]:
    """The option for pip, empty where pip needs none, and a sentence about the choice, empty where there is none."""
    if sys.platform != "linux" or any("index" in word or "find-links" in word for word in given):
        return "", ""
    only_cpu = "--cpu" in given
    if has_gpu() and not only_cpu:
        return "", f"torch: the build for CUDA, about {CUDA}, since there is a GPU."
    if is_reachable():
        return (f"--extra-index-url={INDEX}", f"torch: the build for CPUs, about {PROCESSORS}, from {INDEX}.")
    if only_cpu:
        return "", f"torch: {INDEX} cannot be reached, so the build for CPUs has to be where pip looks otherwise."
    return "", (
        f"torch: there is no GPU, but {INDEX} cannot be reached, so pip takes the build that it finds itself. On PyPI "
        f"that is the one for CUDA, about {CUDA}; PIP_ARGS='--extra-index-url=...' names another index."
    )


def has_gpu() -> bool:
    """Whether there is a GPU that torch could use, as far as files and programs tell."""
    return any(Path(device).exists() for device in DEVICES) or shutil.which("nvidia-smi") is not None


def is_reachable() -> bool:
    """Whether PyTorch's index answers within a few seconds."""
    try:
        with urllib.request.urlopen(f"{INDEX}/torch/", timeout=SECONDS) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):  # no network, no name, a refusal, an odd proxy
        return False


def main() -> None:
    """Print the option, and on stderr the sentence."""
    words, sentence = option(sys.argv[1:])
    print(words)
    if sentence:
        print(sentence, file=sys.stderr)


if __name__ == "__main__":
    main()
