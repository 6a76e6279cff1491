"""Exports of trackers and labelling tools, recognised by their columns."""

from collections.abc import Callable

from tutelage.data import evaluation_exports as evaluations
from tutelage.data import labelling_exports as labelling
from tutelage.data import tracker_exports as trackers
from tutelage.data.annotations import Exported, Parts
from tutelage.data.export_values import exported
from tutelage.data.readers import Values
from tutelage.data.table_format import RowFormat


def _has(*columns: str) -> Callable[[Values], bool]:
    return lambda values: set(columns) <= values.keys()


FORMATS: tuple[tuple[str, Callable[[Values], bool], Callable[[Values, Parts], Exported]], ...] = (
    ("Langfuse scores", trackers.is_langfuse_score, trackers.langfuse_score),
    ("LangSmith feedback", _has("key", "run_id", "score", "feedback_source"), trackers.langsmith_feedback),
    ("Phoenix annotations", _has("span_id", "annotator_kind", "name"), trackers.phoenix_annotation),
    ("LangSmith runs", _has("id", "run_type", "inputs", "outputs"), trackers.langsmith_run),
    ("Phoenix spans", _has("context.span_id", "attributes.input.value"), trackers.phoenix_span),
    ("Inspect samples", evaluations.is_inspect_sample, evaluations.inspect_sample),
    ("Braintrust rows", evaluations.is_braintrust_row, evaluations.braintrust_row),
    ("Opik traces", evaluations.is_opik_trace, evaluations.opik_trace),
    ("Langfuse traces or observations", trackers.is_langfuse_trace, trackers.langfuse_trace),
    ("Argilla records", _has("id", "fields", "responses"), labelling.argilla_record),
    ("Argilla records, flattened", labelling.is_argilla_flat, labelling.argilla_flat),
    ("Label Studio tasks", _has("id", "data", "annotations"), labelling.label_studio_task),
    ("Label Studio annotations", _has("annotation_id", "annotator", "lead_time"), labelling.label_studio_row),
    ("Mechanical Turk results", _has("HITId", "AssignmentId", "WorkerId"), labelling.mechanical_turk_row),
    ("Prolific submissions", _has("Submission id", "Participant id", "Status"), labelling.prolific_submission),
)
"""Name, whether a row has the columns, and the reader of a row."""


def annotation_formats(parts: Parts) -> tuple[RowFormat[Exported], ...]:
    """The formats for files whose prompts and responses are in these parts. Every column counts as read: a tracker's
    rows have dozens of measurements."""

    def form(
        name: str, fits: Callable[[Values], bool], read: Callable[[Values, Parts], Exported]
    ) -> RowFormat[Exported]:
        return RowFormat(name, (), lambda values: exported(read, dict(values), parts), fits=fits)

    return tuple(form(*each) for each in FORMATS)
