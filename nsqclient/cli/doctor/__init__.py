"""``nsqclient doctor``: checks a cluster from where a client stands, and reports what is wrong.

``doctor`` is the tool: flags, exit status; ``report`` prints the findings of ``nsqclient.doctor``.
"""
