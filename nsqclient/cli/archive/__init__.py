"""The parts of ``nsq_to_file``: names and rotation, files, the handler.

``naming`` is pure: the time is an argument.
"""
