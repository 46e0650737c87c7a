"""One TCP connection to one nsqd: handshake, reader thread, writer."""
