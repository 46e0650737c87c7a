"""A shop: an order and the message about it are committed together, and a relay publishes it."""
