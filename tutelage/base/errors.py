"""The one exception a user is meant to read."""


class TutelageError(Exception):
    """Bad input or an impossible request, told in a sentence: what is wrong, where, and what to do instead.

    The command line prints the message without a traceback and exits with status 2. Anything else that escapes
    is a defect of ours and keeps its traceback.
    """

    page = ""
    """The page of `docs` that explains errors of a class; empty where it is that of the module which raises them."""
