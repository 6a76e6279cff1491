"""Validation errors of a form, shown next to the field."""


class Problem:
    """The validation error of a page's form and the name of its field; both empty without an error.

    A template shows it next to that field if the form has it, and otherwise above the forms. Read `above` after the
    forms have been rendered: the layout renders them first.
    """

    def __init__(self, told: str = "", field: str = "") -> None:
        self.told = told
        self.field = field
        self._shown = False

    def __bool__(self) -> bool:
        return bool(self.told)

    def is_about(self, field: str) -> bool:
        """Whether the error belongs to the field."""
        return bool(self.told) and field == self.field

    def beside(self, field: str) -> str:
        """The message to show next to the field, marking it as shown; empty if it belongs to another field."""
        if not self.is_about(field):
            return ""
        self._shown = True
        return self.told

    @property
    def above(self) -> str:
        """The message to show above the forms; empty if it is shown next to its field."""
        return "" if self._shown else self.told
