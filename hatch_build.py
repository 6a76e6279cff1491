"""Puts compiled kernels into wheels, when HATCH_BUILD_HOOK_ENABLE_CUSTOM=true is set.

Without it a wheel holds Python and sources alone and fits every machine. With it the wheel fits one system and machine,
and any Python: the kernels know nothing of Python.
"""

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


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
