"""The parts of a Producer, each with one reason to change.

``verdicts`` says how a try ended, ``links`` keeps a connection to each nsqd and dials in the
background, ``blocking`` is a publish in the calling thread, ``pipeline`` publishes
asynchronously, ``discoverer`` asks nsqlookupds for nsqds, ``statistics`` counts.
"""
