"""Wire values of the redesigned (partitioned) NSQ: pure, no I/O."""
