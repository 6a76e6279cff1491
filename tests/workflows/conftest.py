"""Workflows are tested on the files of the verbs' tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "commands"))
