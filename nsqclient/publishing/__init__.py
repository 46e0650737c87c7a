"""The parts of a Producer, each with one reason to change.

``verdicts`` says how a try ended, ``link`` is one nsqd and ``links`` all of them, dialed in the
background, ``blocking`` is a publish in the calling thread, ``pipeline`` publishes
asynchronously, ``items`` and ``batches`` are what it carries, ``discoverer`` asks nsqlookupds for
nsqds, ``statistics`` counts.
"""
