"""For Django: a module for each command of manage.py."""
