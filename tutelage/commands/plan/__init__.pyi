# Written by scripts/interface.py.

from tutelage.commands.plan.run import announcement as announcement
from tutelage.commands.plan.run import change_that_fits as change_that_fits
