"""The parts of a Producer, each with one reason to change.

``verdicts`` says how a try ended, ``link`` is one nsqd and ``links`` all of them, dialed in the
background. ``blocking`` is a publish in the calling thread, made of ``attempts``, and ``company``
those of many threads together, which ``waking`` wakes. ``pipeline`` publishes asynchronously:
``items`` and ``batches`` are what it carries, ``unanswered`` what it has sent, ``unseen`` the
failures that nobody looked at.
``discoverer`` asks nsqlookupds for nsqds, ``statistics`` counts.
"""
