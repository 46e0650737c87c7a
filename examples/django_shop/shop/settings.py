"""Settings of the project. Addresses come from the environment, with NSQ's usual ports."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

SECRET_KEY = "only for this example"
DEBUG = os.environ.get("DEBUG") == "1"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["nsqclient.contrib.django", "shop"]
ROOT_URLCONF = "shop.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", str(HERE / "shop.sqlite3")),
        "OPTIONS": {"timeout": 20},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"

NSQCLIENT = {
    # Views publish to the nsqd beside them; workers find every nsqd through nsqlookupd.
    "NSQD_TCP_ADDRESSES": [os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")],
    "LOOKUPD_HTTP_ADDRESSES": [
        address for address in [os.environ.get("LOOKUPD_HTTP_ADDRESS", "")] if address
    ],
    # A request should fail before gunicorn's timeout of 30 s ends its worker.
    "OPTIONS": {"publish_timeout": 5, "lookupd_poll_interval": 2},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {"nsqclient": {"handlers": ["stderr"], "level": "INFO"}},
}
