"""The server's side of the NSQ protocols, as pure state machines: nsqd and nsqlookupd."""
