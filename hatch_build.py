"""What a build does beside packing files: the README and the addresses for PyPI, and compiled kernels.

Kernels are put into a wheel when HATCH_BUILD_HOOK_ENABLE_CUSTOM=true is set. Without it a wheel holds Python and
sources alone and fits every machine. With it the wheel fits one system and machine, and any Python: the kernels know
nothing of Python.
"""

import re
import runpy
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


def with_addresses(text: str, repository: str, tag: str) -> str:
    """A Markdown page whose relative links and images are those of the repository at `tag`; without a public address
    of the repository, the texts of the links alone."""
    relative = r"(?!https?:|#)(?=[^)\s]+\))"
    if not repository:
        text = re.sub(rf"!\[[^\]]*\]\({relative}[^)]*\)\n*", "", text)
        return re.sub(rf"\[((?:!\[[^\]]*\]\([^)]*\)|[^\]])*)\]\({relative}[^)]*\)", r"\1", text)
    images = f"{repository.replace('https://github.com', 'https://raw.githubusercontent.com')}/{tag}/"
    text = re.sub(rf"(!\[[^\]]*\]\(){relative}", rf"\g<1>{images}", text)
    return re.sub(rf"(\]\(){relative}", rf"\g<1>{repository}/blob/{tag}/", text)


class MetadataHook(MetadataHookInterface):
    """Makes the README the description of the package, and names its addresses."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        repository = runpy.run_path(str(Path(self.root, "tutelage", "base", "version.py")))["REPOSITORY"]
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = with_addresses(text, repository, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {"Source": repository, "Documentation": f"{repository}/tree/main/docs"} if repository else {}


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
