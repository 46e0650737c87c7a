"""For Django: the versions of the table."""
