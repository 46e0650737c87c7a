"""The version, in one place; ``setup.cfg`` and the IDENTIFY user agent read it here."""

__version__ = "1.0.0rc1"
