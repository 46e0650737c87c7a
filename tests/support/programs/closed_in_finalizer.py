"""The finalizer of a global uses the library while the interpreter ends: ``ADDRESS``."""

import sys
import time

from nsqclient import Consumer, Producer


class Wrapper:
    def __init__(self, address):
        self.producer = Producer([address])
        self.producer.publish("events", b"body")
        self.consumer = Consumer("events", "c", print, nsqd_tcp_addresses=[address]).start()
        self.clock = time.monotonic  # modules are gone when the finalizer runs

    def __del__(self):
        began = self.clock()
        try:
            self.producer.publish_async("events", b"body")
        except RuntimeError as exc:
            print("publish_async:", exc)
        print("close:", self.producer.close(30))
        print("stop:", self.consumer.stop(30).complete)
        print("in time:", self.clock() - began < 5, flush=True)


wrapper = Wrapper(sys.argv[1])
