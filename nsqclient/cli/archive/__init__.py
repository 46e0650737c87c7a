"""The parts of ``nsq_to_file``: names and rotation, files, topics, the handler.

``naming`` is pure: the time is an argument.
"""
