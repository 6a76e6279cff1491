"""Output of `tutelage export`: the export and its usage."""

from tutelage.base.nouns import counted
from tutelage.commands.export.run import export, export_gguf
from tutelage.commands.export.settings import ExportGgufSettings, ExportSettings
from tutelage.commands.terminal import remarks


def main(settings: ExportSettings | ExportGgufSettings) -> int:
    """Write the export, and print a summary and its usage."""
    if isinstance(settings, ExportGgufSettings):
        with remarks(quiet=settings.quiet):
            model = export_gguf(settings)
        text = (
            f"{model.file}: {counted(model.parameters, 'weight')} as {settings.weights}, {model.size / 1e6:,.1f} MB. "
            f"Try it: llama-cli -m {model.file}, or tutelage chat --model {model.file}."
        )
    else:
        run = export(settings)
        text = "\n- ".join((f"The run is in {run.folder}. Start it with {run.launch}.", *run.differences))
    if not settings.quiet:
        print(text)
    return 0
