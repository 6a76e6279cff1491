"""Settings of exports: of a run to a trainer for clusters, of a model to llama.cpp."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tutelage.base.config.bounds import at_least
from tutelage.base.errors import TutelageError
from tutelage.commands.improve.settings import ImproveSettings


@dataclass(frozen=True, kw_only=True)
class ExportSettings(ImproveSettings):
    """Write a run of improve for verl or OpenRLHF, which train on many machines: its prompts, its reward and a launch
    script. It takes the flags of improve; --out is the folder that is written. --to gguf writes a model for llama.cpp
    instead: see tutelage export --to gguf --help."""

    to: Literal["verl", "openrlhf"]
    """The trainer: verl 0.9 or OpenRLHF 0.11."""
    gpus: int = 8
    """GPUs of the whole run."""
    gpus_per_node: int = 8
    """GPUs of one machine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, gpus=1, gpus_per_node=1)

    @property
    def nodes(self) -> int:
        """Machines of the run."""
        return -(-self.gpus // self.gpus_per_node)


@dataclass(frozen=True, kw_only=True)
class ExportGgufSettings:
    """Write a model as a GGUF file, the format of llama.cpp, Ollama and LM Studio: weights with the adapter merged,
    tokenizer and chat template."""

    to: Literal["gguf"] = "gguf"
    """The format. verl and openrlhf write a run of improve for other trainers: see tutelage export --help."""
    model: str
    """Folder of a policy, such as the model/ of a run, or its name on the hub; an adapter is merged into its base."""
    out: Path
    """The file that is written; its name ends in .gguf."""
    weights: Literal["f32", "f16", "bf16", "q8_0"] = "f16"
    """How matrices are held: 32, 16, 16 or 8.5 bits for each number. Norms and biases always have 32."""
    quiet: bool = False
    """Print nothing."""

    def __post_init__(self) -> None:
        if self.out.suffix.lower() != ".gguf" or self.out.is_dir():
            raise TutelageError(
                f"--out {self.out} is not the name of a .gguf file, such as {self.out / 'model'}.gguf."
            )


VARIANTS = {("--to", "gguf"): ExportGgufSettings}
"""Settings in the place of `ExportSettings`, by the flag that chooses them."""
