"""What is wrong with what was sent, beside the field that it is about."""


class Problem:
    """The sentence about a form for its page, and the name of the field that it belongs to; both empty where nothing is
    wrong.

    A template shows it beside the field, if it has that field, and above the forms otherwise. So `above` is read after
    the forms were made: the layout makes them first and puts them below.
    """

    def __init__(self, told: str = "", field: str = "") -> None:
        self.told = told
        self.field = field
        self._shown = False

    def __bool__(self) -> bool:
        return bool(self.told)

    def is_about(self, field: str) -> bool:
        """Whether it belongs to the field."""
        return bool(self.told) and field == self.field

    def beside(self, field: str) -> str:
        """The sentence for the place beside the field, which shows it from here on; empty where it is about another."""
        if not self.is_about(field):
            return ""
        self._shown = True
        return self.told

    @property
    def above(self) -> str:
        """The sentence for the place above the forms; empty where it stands beside its field."""
        return "" if self._shown else self.told
