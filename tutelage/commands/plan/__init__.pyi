# Written by scripts/interface.py.

from tutelage.commands.plan.remedies import change_that_fits as change_that_fits
