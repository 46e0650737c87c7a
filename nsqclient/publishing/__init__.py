"""The parts of a Producer: ``verdicts`` says how a publish ended and whether it may be tried
again, ``links`` keeps one connection on demand for each nsqd and chooses among them.
"""
