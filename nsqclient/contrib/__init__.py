"""nsqclient in Django and Flask: they publish from request handlers and run consumers as commands.

Both share ``settings``, and the flags of ``nsqclient worker``. Each framework is imported in its
own module or folder only, and comes with the extra of its name.
"""
