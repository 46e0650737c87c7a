"""A browser, and an admin page for it."""
