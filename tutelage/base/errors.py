"""Exception for errors that users are meant to read."""


class TutelageError(Exception):
    """Invalid input or an impossible request, with a one-sentence message: what is wrong, where, and how to fix it.

    The command line prints the message without a traceback and exits with status 2. Any other exception is a bug in
    this package and keeps its traceback.
    """

    page = ""
    """Page of `docs` that explains errors of this class; if empty, the page of the module that raises them."""
