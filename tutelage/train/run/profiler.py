"""Profiler: a table and a trace of a few steps of a run."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from tutelage.base.nouns import counted
from tutelage.train.run.trackers import Tracker

log = logging.getLogger(__name__)

TABLE, TRACE = "profile.txt", "trace.json"
STEPS = 3
"""Number of profiled steps. The first step is skipped because of its one-time costs."""


@contextmanager
def profiled(folder: Path) -> Iterator[Tracker]:
    """Tracker that profiles the steps after the first and writes profile.txt and trace.json to `folder` at the end.

    profile.txt lists operations by self time, grouped by name and then by input shapes; trace.json opens in
    Perfetto. Logs a warning if there is no step after the first.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    recorder = profile(activities=activities, record_shapes=True)
    ended: list[int] = []

    def track(step: int, metrics: Mapping[str, float]) -> None:
        if step < 1 or step in ended:  # step 0 is the evaluation before training
            return
        ended.append(step)
        if len(ended) == 1:
            recorder.start()
        elif len(ended) == 1 + STEPS:
            _write(recorder, folder, STEPS)

    try:
        yield track
    finally:
        if 1 < len(ended) <= STEPS:
            _write(recorder, folder, len(ended) - 1)
        elif len(ended) == 1:
            recorder.stop()
            log.warning("--profile recorded nothing: the run had no step after its first.")


def _write(recorder: profile, folder: Path, steps: int) -> None:
    recorder.stop()
    where = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    tables = (
        recorder.key_averages(group_by_input_shape=by_shape).table(
            sort_by=where, row_limit=40, max_name_column_width=60, max_shapes_column_width=80
        )
        for by_shape in (False, True)
    )
    (folder / TABLE).write_text("\n".join((counted(steps, "step"), *tables)), encoding="utf-8")
    recorder.export_chrome_trace(str(folder / TRACE))
