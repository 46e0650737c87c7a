"""The parts of a Consumer, each with one reason to change.

``membership`` keeps the connections, ``subscription`` is one connection's messages and answers,
``flow_control`` shares RDY and backs off, ``handling`` runs the handler, ``stopping`` is the
stop procedure, ``reports`` what a consumer tells about itself.
"""
