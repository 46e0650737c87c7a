"""Settings of a Django project for tests: for this process, and for programs of a test.

The environment says where its servers are: ``NSQD_TCP_ADDRESS``, and ``POSTGRES``, the folder of
PostgreSQL's socket, or else ``DATABASE``, a file of SQLite.
"""

import os

SECRET_KEY = "only for tests"
INSTALLED_APPS = ["nsqclient.contrib.django", "nsqclient.contrib.django.outbox"]
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE", ":memory:"),
          "OPTIONS": {"timeout": 20}}
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "nsq",
            "HOST": os.environ.get("POSTGRES", "/nowhere")}
DATABASES = {"default": POSTGRES if "POSTGRES" in os.environ else SQLITE, "postgres": POSTGRES}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
NSQCLIENT = {"NSQD_TCP_ADDRESSES": [os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:1")]}
USE_TZ = True
LOGGING = {
    "version": 1, "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"nsqclient": {"handlers": ["stderr"], "level": "INFO"}}
    if "NSQD_TCP_ADDRESS" in os.environ else {},
}


def configure() -> None:
    """Use these settings in this process, unless it has some already."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            **{name: value for name, value in globals().items() if name.isupper()})
        django.setup()
