"""The plan of a run. Other commands take from it what would make a run fit, once its memory ran out."""

from tutelage.base.lazy import lazy_names

_PLACES = {"change_that_fits": "tutelage.commands.plan.remedies"}

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
