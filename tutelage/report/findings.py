"""What asks for a look in the runs of a folder: the findings that its report shows beside the figures."""

from dataclasses import dataclass
from pathlib import Path

from tutelage.report.folders import RoundContent, read
from tutelage.report.stage_figures import figures, further_figures


@dataclass(frozen=True)
class RunFinding:
    """A sentence about one figure of a stage, about the chat templates of its models (`subject` is "Chat template"),
    about its final model ("Saved model"), or about a file of it that cannot be read ("files")."""

    stage: str
    subject: str
    sentence: str


def findings_in(folder: Path) -> tuple[RunFinding, ...]:
    """The findings in the folder of a run or of a round, by stage. Raises TutelageError where the folder is neither."""
    return findings(read(folder))


def findings(found: RoundContent) -> tuple[RunFinding, ...]:
    """The findings about the stages of a round, in their order."""
    told = [RunFinding("", "files", trouble) for trouble in found.troubles]
    for stage in found.stages:
        told += [RunFinding(stage.name, "files", trouble) for trouble in stage.run.troubles]
        told += [RunFinding(stage.name, "Chat template", sentence) for sentence in stage.run.mismatches]
        drawn = (*figures(stage.kind, stage.run), *further_figures(stage.kind, stage.run))
        told += [RunFinding(stage.name, one.title, one.finding) for one in drawn if one.finding]
        if stage.status == "failed":
            told.append(
                RunFinding(stage.name, "status", "The stage ended with an error before it was finished.")
            )
    return tuple(told)
