"""Checks before the first step of a run: room on the disk, batches larger than the data, weights of 0."""

import shutil
from collections.abc import Sequence

from tutelage.base.errors import TutelageError
from tutelage.commands.runs import remark
from tutelage.data.records import Preference
from tutelage.models.heads import ScalarModel
from tutelage.models.policy import Policy
from tutelage.train.run.folder import Run

STATE = 3 * 4
"""Bytes in a checkpoint for every trained weight, beside the model: the weight and its two moments in float32."""


def check_disk(run: Run, *models: Policy | ScalarModel) -> None:
    """Refuse to begin a run whose first checkpoint and final model do not fit on the disk.

    A checkpoint holds what is trained and the state of the optimiser, the final model all weights. A run that goes on
    is not asked: it has its checkpoints.

    Raises TutelageError with the room that there is and the room that is needed.
    """
    if run.start:
        return
    weights = [weight for each in models for weight in each.model.parameters()]
    trained = [weight for weight in weights if weight.requires_grad]
    needed = sum(each.numel() * (each.element_size() + STATE) for each in trained)
    needed += sum(each.numel() * each.element_size() for each in weights)
    free = shutil.disk_usage(run.path).free
    if free < needed:
        raise TutelageError(
            f"The disk of {run.path} has {free / 1e6:,.1f} MB free, and a checkpoint with the final model takes at "
            f"least {needed / 1e6:,.1f} MB: make room and begin with --resume, or choose another --out."
        )


def remark_batch(batch_size: int, rows: int, what: str = "rows") -> None:
    """Remark that a batch is larger than the data, so that every step takes all rows."""
    if rows < batch_size:
        remark(
            f"--batch-size is {batch_size}, but there are only {rows} {what}: every step takes all of them."
        )


def check_weights(preferences: Sequence[Preference], source: str) -> None:
    """Refuse preferences whose weights are all 0, from which nothing could be learnt."""
    if preferences and not any(preference.weight for preference in preferences):
        raise TutelageError(
            f"Every preference of {source} has the weight 0, so nothing could be learnt from them: correct the column "
            "weight, or leave it out."
        )
