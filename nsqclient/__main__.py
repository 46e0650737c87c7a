"""``python -m nsqclient`` does what the console script ``nsqclient`` does."""

import sys

from nsqclient.cli import main

if __name__ == "__main__":
    sys.exit(main())
