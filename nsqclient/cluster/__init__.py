"""Inspecting and changing a cluster from outside: actions, doctor, probes, peeking."""
