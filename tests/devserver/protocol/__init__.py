"""The server's protocol, by value."""
