"""A shop: an order is stored and announced, and a worker writes its receipt."""
