"""Tests of one connection: handshake, reader, writer."""
