"""One TCP connection to one nsqd: handshake, reader thread, writer."""

from nsqclient.runtime.log_lines import install

install()
