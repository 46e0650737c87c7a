"""One TCP connection to one nsqd: handshake, reader thread, writer."""

from nsqclient.runtime.log_dispatch import install

install()
