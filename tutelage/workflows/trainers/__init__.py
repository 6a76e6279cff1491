"""Runs of `improve` as the settings of other trainers. A new trainer is a file here and its place in `TRAINERS`."""

from collections.abc import Mapping

from tutelage.workflows.trainers.openrlhf import OPENRLHF
from tutelage.workflows.trainers.translation import Trainer
from tutelage.workflows.trainers.verl import VERL

TRAINERS: Mapping[str, Trainer] = {"verl": VERL, "openrlhf": OPENRLHF}
"""By the values of `ExportSettings.to`."""
