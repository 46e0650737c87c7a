"""nsqclient in Django and Flask: they publish from request handlers and run consumers as commands.
"""
