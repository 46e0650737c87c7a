"""The parts of ``nsq_to_file``: file names, rotation, records, files, topics, the handler.

``naming``, ``rotation`` and ``records`` are pure: the time is an argument.
"""
