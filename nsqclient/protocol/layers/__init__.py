"""Byte layers between the socket and the frames: TLS, deflate, snappy."""
