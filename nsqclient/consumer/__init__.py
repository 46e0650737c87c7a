"""Consumes a channel: connections, RDY and backoff, the handler, the shutdown.

``discovery`` polls the nsqlookupds, ``connections`` keeps a connection to each nsqd,
``subscription`` is one connection's messages and responses, ``flow_control`` applies what ``rdy``
and ``backoff`` decide, ``processor`` queues the messages and runs the handler, ``backpressure``
bounds what waits, ``shutdown`` is the stop procedure, ``stats`` what a consumer reports about
itself. They report to a private object, ``delegate``.
"""
