"""`tutelage export --to verl|openrlhf`: a run of improve, written down for a trainer of clusters."""

from tutelage.workflows.settings.export import ExportSettings

Settings = ExportSettings


def main(settings: ExportSettings) -> int:
    """Write the folder, and print how to start the run and what it does otherwise."""
    from tutelage.workflows.export import export

    result = export(settings)
    if not settings.quiet:
        print(f"The run is in {result.folder}. Start it with {result.launch}.")
        for line in result.differences:
            print(f"- {line}")
    return 0
