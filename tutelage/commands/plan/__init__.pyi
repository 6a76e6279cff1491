# Written by scripts/interface.py.

from tutelage.commands.plan.remedies import change_that_fits as change_that_fits
from tutelage.commands.plan.run import announcement as announcement
