"""Statistics of a study: agreement, raters, labels, bias, models.

ballots.py           all votes as integer columns, updated incrementally
computation.py       statistics of the columns, and previews of exclusions
rater_statistics.py  reliability, bias and flags of each rater
leaderboard.py       comparison of the models of a study
cache.py             cache of statistics, computed on request or in a thread
"""
