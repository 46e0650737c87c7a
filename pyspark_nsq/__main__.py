"""The script for ``spark-submit``: ``spark-submit "$(nsqclient spark script)" archive --topic=...``.

The arguments are those of ``nsqclient spark``.
"""

import sys

from nsqclient.cli.spark import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
