"""Settings: frozen dataclasses with documented fields, filled from files, flags or code, and checked exactly.

`pieces` are sections that commands share (which model, which optimiser, ...), `bases` classes that their settings
inherit. `mapping` turns any nested frozen dataclass into plain mappings and back, by its type `hints`; `aliases` keeps
old names readable; `files` reads and writes settings, and `flags` reads them from the command line.
"""

from tutelage.base.config.files import load, resolve, save
from tutelage.base.config.mapping import (
    LATER,
    Difference,
    difference,
    from_mapping,
    identity,
    overlay,
    to_mapping,
    with_defaults,
)
from tutelage.base.config.sections import (
    POLICY_EPS,
    Checkpoints,
    DtypeName,
    EngineName,
    Lora,
    Model,
    Optimiser,
    Rates,
    Sampling,
    Shape,
    settle_rate,
)

__all__ = [
    "LATER",
    "POLICY_EPS",
    "Checkpoints",
    "Difference",
    "DtypeName",
    "EngineName",
    "Lora",
    "Model",
    "Optimiser",
    "Rates",
    "Sampling",
    "Shape",
    "difference",
    "from_mapping",
    "identity",
    "load",
    "overlay",
    "resolve",
    "save",
    "settle_rate",
    "to_mapping",
    "with_defaults",
]
