"""`python -m tutelage` is the console script."""

import sys

from tutelage.commands.line import main

if __name__ == "__main__":
    sys.exit(main())
