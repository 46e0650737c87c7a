"""Every fault of a network, between a client of ours and both kinds of server.

By default a seeded choice of positions is tried; with ``NSQ_FAULTS=full`` all.
"""
