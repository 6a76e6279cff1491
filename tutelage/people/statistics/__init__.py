"""Statistics of a study: agreement, raters, labels, bias, models.

ballots.py           all votes as integer columns, updated incrementally
computation.py       statistics of the columns and of each rater, and previews of exclusions
leaderboard.py       comparison of the models of a study
cache.py             cache of statistics, computed on request or in a thread
"""
