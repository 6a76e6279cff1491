"""Output of `tutelage export`: the export and its usage."""

from tutelage.base.nouns import counted
from tutelage.commands.export.settings import ExportGgufSettings, ExportSettings


def main(settings: ExportSettings | ExportGgufSettings) -> int:
    """Write the export, and print a summary and its usage."""
    return _model(settings) if isinstance(settings, ExportGgufSettings) else _run(settings)


def _model(settings: ExportGgufSettings) -> int:
    from tutelage.commands.export.gguf import export_gguf
    from tutelage.commands.terminal import remarks

    with remarks(quiet=settings.quiet):
        result = export_gguf(settings)
    if not settings.quiet:
        print(
            f"{result.file}: {counted(result.parameters, 'weight')} as {settings.weights}, {result.size / 1e6:,.1f} "
            f"MB. Try it: llama-cli -m {result.file}, or tutelage chat --model {result.file}."
        )
    return 0


def _run(settings: ExportSettings) -> int:
    from tutelage.commands.export.run import export

    result = export(settings)
    if not settings.quiet:
        print(f"The run is in {result.folder}. Start it with {result.launch}.")
        for line in result.differences:
            print(f"- {line}")
    return 0
