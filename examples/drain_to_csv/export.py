"""A nightly job: appends the orders of the day to a CSV file, and ends.

    python export.py NSQLOOKUPD orders.csv
"""

import csv
import logging
import os
import sys

from nsqclient import Config, Consumer

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
address, path = sys.argv[1:]
# Messages in flight of a killed run come back after msg_timeout.
config = Config(msg_timeout=10)
consumer = Consumer("orders", "csv", lookupd_http_addresses=[address], max_in_flight=100,
                    config=config)

with open(path, "a", newline="") as file, consumer:
    writer = csv.writer(file)
    for message in consumer.drain():
        try:
            order = message.json()
            row = [message.id, order["customer"], order["total"]]
        except (ValueError, KeyError, TypeError) as error:
            print(f"not an order: {message}: {error}", file=sys.stderr)
            continue  # the message is finished all the same
        writer.writerow(row)
        file.flush()
        os.fsync(file.fileno())  # finished only when the line is on the disk
