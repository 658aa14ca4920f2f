"""`python -m hutch` is the same as `hutch`."""

import sys

from hutch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
