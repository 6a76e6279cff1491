"""Errors of single values, by the name of the value."""

from tutelage.errors import TutelageError


class FieldError(TutelageError):
    """An error in one value of those that make up a setting. `field` is the name of the value, the same in the
    dataclass or function that takes it and in the form of the page, which shows the sentence beside that input."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field
