"""What a build does beside packing files: the README for PyPI, and compiled kernels.

Kernels are put into a wheel when HATCH_BUILD_HOOK_ENABLE_CUSTOM=true is set. Without it a wheel holds Python and
sources alone and fits every machine. With it the wheel fits one system and machine, and any Python: the kernels know
nothing of Python.
"""

import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "tutelage/tutelage"


def with_addresses(text: str, tag: str) -> str:
    """A Markdown page whose relative links and images are those of the repository at `tag`."""
    relative = r"(?!https?:|#)(?=[^)\s]+\))"
    images = f"https://raw.githubusercontent.com/{REPOSITORY}/{tag}/"
    text = re.sub(rf"(!\[[^\]]*\]\(){relative}", rf"\g<1>{images}", text)
    return re.sub(rf"(\]\(){relative}", rf"\g<1>https://github.com/{REPOSITORY}/blob/{tag}/", text)


class ReadmeHook(MetadataHookInterface):
    """Makes the README the description of the package."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_addresses(text, f"v{metadata['version']}")}


class KernelsHook(BuildHookInterface):
    """Compiles the kernels for every target of this machine and adds them to the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the files and the platform to hatchling. Fails on machines that have no targets."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from tutelage.engines.cpu.native import build

        targets = build.targets()
        if not targets:
            raise RuntimeError(f"no kernels are prebuilt for {sysconfig.get_platform()}")
        self._folder = tempfile.TemporaryDirectory()
        inside = build.PREBUILT.relative_to(self.root)
        for target in targets:
            path = build.prebuild(target, Path(self._folder.name))
            build_data["force_include"][str(path)] = str(inside / path.name)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, which is in the wheel now."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
