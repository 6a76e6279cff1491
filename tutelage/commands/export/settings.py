"""Settings of exports: of a run to a cluster trainer, of a model to llama.cpp."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tutelage.base.config.bounds import at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.improve.settings import ImproveSettings


@dataclass(frozen=True, kw_only=True)
class ExportSettings(ImproveSettings):
    """Export an improve run to verl or OpenRLHF, for training on many machines: its prompts, its reward and a launch
    script. Takes the flags of improve; --out is the folder to write. --to gguf exports a model for llama.cpp instead:
    see tutelage export --to gguf --help."""

    to: Literal["verl", "openrlhf"]
    """Trainer: verl 0.9 or OpenRLHF 0.11."""
    gpus: int = 8
    """Total number of GPUs."""
    gpus_per_node: int = 8
    """GPUs per machine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, gpus=1, gpus_per_node=1)

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return -(-self.gpus // self.gpus_per_node)


@dataclass(frozen=True, kw_only=True)
class ExportGgufSettings:
    """Export a model as a GGUF file, the format of llama.cpp, Ollama and LM Studio: weights with the adapter merged,
    tokenizer and chat template."""

    to: Literal["gguf"] = "gguf"
    """Format. verl and openrlhf export an improve run for other trainers: see tutelage export --help."""
    model: str
    """Folder of a policy, such as the model/ of a run, or its hub name; an adapter is merged into its base."""
    out: Path
    """File to write; its name ends in .gguf."""
    weights: Literal["f32", "f16", "bf16", "q8_0"] = "f16"
    """Storage of matrices: 32, 16, 16 or 8.5 bits per number. Norms and biases always have 32."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        if self.out.suffix.lower() != ".gguf" or self.out.is_dir():
            raise TutelageError(f"--out {self.out} is not the name of a .gguf file, such as {self.out / 'model'}.gguf.")


VARIANTS = {("--to", "gguf"): ExportGgufSettings}
"""Settings that replace `ExportSettings`, by the flag that selects them."""
