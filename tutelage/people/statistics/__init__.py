"""The statistics of a study: agreement, raters, labels, bias, models.

ballots.py           all votes as columns of numbers, updated by reading only what is new
computation.py       the statistics from the columns, and previews of an exclusion
rater_statistics.py  reliability, bias and flags of each rater
leaderboard.py       the models of a study against each other
cache.py             the last statistics, computed on request or in a thread
"""
