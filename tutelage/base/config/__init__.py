"""Settings: frozen dataclasses with documented fields, read from files, flags or code, and validated exactly.

`sections` holds groups of settings that commands share (model, optimiser, ...) and `bases` the classes that the
settings of commands inherit. `mapping` converts nested frozen dataclasses to plain mappings and back, by their type
`hints`; `aliases` keeps old names readable; `files` reads and writes settings, and `flags` reads them from the command
line.
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
    "to_mapping",
    "with_defaults",
]
