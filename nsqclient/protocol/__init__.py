"""The NSQ protocol as bytes and values: names, frames, commands, state machines.

Bytes go in, events come out, bytes to write come out. No socket, thread, clock or log lives
here, so every rule can be tested by value. The same package serves the client and the embedded
server; ``docs/topics/architecture.rst`` shows how to write an I/O layer over it.
"""
