"""Code shared by tests of several packages: waiting, leak checks, real servers, a fault proxy."""
