"""Remarks that the package logs, collected by a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Collector(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.INFO:
            self.lines.append(record.getMessage())


@contextmanager
def collected(lines: list[str]) -> Iterator[None]:
    """Append every remark of the logger `tutelage`, which are its messages of level INFO, to `lines`."""
    logger, handler = logging.getLogger("tutelage"), _Collector(lines)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
