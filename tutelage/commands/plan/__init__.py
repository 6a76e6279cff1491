"""Plan of a run. Other commands use it to suggest a change when a run is out of memory."""

from tutelage.base.lazy import lazy_names

_PLACES = {"change_that_fits": "tutelage.commands.plan.remedies"}

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
