"""Threads, sockets and time, with no word of NSQ in them.

``deadline`` is one time budget shared by many steps, ``timer`` one thread that hands over due
tasks, ``workers`` a queue with N named threads, ``bell`` what a thread sleeps at, ``transport`` a
non-blocking TCP stream.
"""
