"""The console script, also as `python -m tutelage`."""

import os
import sys


def run() -> int:
    """Run the command line. Returns its exit status; after a ctrl-C the process ends at once, with status 130, since
    the libraries take seconds to end by themselves."""
    try:
        from tutelage.commands.line import main

        status = main()
    except KeyboardInterrupt:
        print("Interrupted before anything was done.", file=sys.stderr)
        status = 130
    if status == 130:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(run())
