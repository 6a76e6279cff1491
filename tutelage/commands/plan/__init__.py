"""Plan of a run. Other commands use it to announce a run, and to suggest a change when one is out of memory."""

from tutelage.base.modules import lazy_names

_PLACES = {"announcement": "tutelage.commands.plan.run", "change_that_fits": "tutelage.commands.plan.run"}

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
