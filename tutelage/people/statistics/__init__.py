"""The statistics of a study: agreement, raters, labels, bias, models.

ballots.py     all votes as columns of numbers, kept up to date by reading only what is new
computing.py   the statistics, from the columns
raters.py      what there is to say about each rater
previews.py    what excluding a rater would change
keeping.py     when they are computed, so that no page waits for them
"""
