"""Publishes asynchronously and ends without close(): ADDRESS COUNT."""

import sys

from nsqclient import Producer

producer = Producer([sys.argv[1]])
for number in range(int(sys.argv[2])):
    producer.publish_async("events", b"%d" % number)
