"""For Django: commands of manage.py live in ``commands``."""
