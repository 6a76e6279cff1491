"""`tutelage export --to verl|openrlhf|gguf`: a run for a trainer of clusters, or a model for llama.cpp."""

from tutelage.base.nouns import counted
from tutelage.workflows.settings.export import ExportGgufSettings, ExportSettings

Settings = ExportSettings

VARIANTS = {("--to", "gguf"): ExportGgufSettings}
"""Settings in the place of `Settings`, by the flag that chooses them."""


def main(settings: ExportSettings | ExportGgufSettings) -> int:
    """Write the export, and print what it is and how to use it."""
    return _model(settings) if isinstance(settings, ExportGgufSettings) else _run(settings)


def _model(settings: ExportGgufSettings) -> int:
    from tutelage.commands.terminal import remarks
    from tutelage.workflows.export_gguf import export_gguf

    with remarks(quiet=settings.quiet):
        result = export_gguf(settings)
    if not settings.quiet:
        print(
            f"{result.file}: {counted(result.parameters, 'weight')} as {settings.weights}, {result.size / 1e6:,.1f} "
            f"MB. Try it: llama-cli -m {result.file}, or tutelage chat --model {result.file}."
        )
    return 0


def _run(settings: ExportSettings) -> int:
    from tutelage.workflows.export import export

    result = export(settings)
    if not settings.quiet:
        print(f"The run is in {result.folder}. Start it with {result.launch}.")
        for line in result.differences:
            print(f"- {line}")
    return 0
