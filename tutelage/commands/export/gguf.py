"""Export of a policy for llama.cpp: one GGUF file with weights, tokenizer and chat template."""

from dataclasses import dataclass
from pathlib import Path

from tutelage.base import config
from tutelage.base.progress.phases import phase
from tutelage.commands.calls import workflow
from tutelage.commands.export.settings import ExportGgufSettings
from tutelage.engines.network import inner
from tutelage.models.backbone import load_backbone
from tutelage.models.gguf_writer import write_gguf


@dataclass(frozen=True)
class ExportGgufResult:
    """The exported file."""

    file: Path
    size: int
    """Size in bytes."""
    parameters: int
    """Number of weights."""


@workflow(ExportGgufSettings)
def export_gguf(settings: ExportGgufSettings) -> ExportGgufResult:
    """Export a policy as the GGUF file `settings.out`; an adapter is merged into its base.

        tt.export_gguf(model="runs/ppo/model", out="policy.gguf", weights="q8_0")

    Raises:
        TutelageError: llama.cpp does not support this architecture, or would tokenise differently.
    """
    backbone = load_backbone(config.Model(settings.model, device="cpu"))
    model = inner(backbone.model)
    with phase("save"):
        write_gguf(model, backbone.tokenizer, settings.out, settings.weights, name=_name(settings.model))
    return ExportGgufResult(
        settings.out, settings.out.stat().st_size, sum(weight.numel() for weight in model.parameters())
    )


def _name(path: str) -> str:
    """Return the name of the model in the file: that of the run, if the folder is the `model` of a run."""
    whole = Path(path).resolve() if Path(path).exists() else Path(path)
    return whole.parent.name if whole.name == "model" else whole.stem
