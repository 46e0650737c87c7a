"""Threads, sockets and time; nothing here depends on NSQ.

``deadline`` is one time budget shared by many steps, ``timer`` one thread that hands over due
tasks, ``workers`` a queue with N named threads, ``transport`` a non-blocking TCP stream.
"""
