"""Names of what a study holds to train on, by where it comes from; settings import them, so nothing else is here.

votes        the better of each two responses, whatever was asked: a side, an order, ratings
live         the same of the turns of live conversations
corrections  better responses that raters wrote, over those that they correct
"""

from typing import Literal, TypeAlias

StudyRows: TypeAlias = Literal["votes", "live", "corrections"]
ALL_ROWS: tuple[StudyRows, ...] = ("votes", "live", "corrections")
VOTED: tuple[StudyRows, ...] = ("votes", "live")
"""What votes decide."""
WRITTEN: tuple[StudyRows, ...] = ("live", "corrections")
"""What raters wrote, or went on from."""
