"""``python -m nsqclient`` is the console script ``nsqclient``."""

import sys

from nsqclient.cli import main

if __name__ == "__main__":
    sys.exit(main())
