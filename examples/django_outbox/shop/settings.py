"""Settings of the project. Addresses come from the environment, with the usual ports."""

import os

SECRET_KEY = "only for this example"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["nsqclient.contrib.django", "nsqclient.contrib.django.outbox", "shop"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
NSQCLIENT = {"NSQD_TCP_ADDRESSES": [os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")]}
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres",
                         "USER": "nsq", "HOST": os.environ.get("POSTGRES", "127.0.0.1")}}
if "SQLITE" in os.environ:
    DATABASES["default"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SQLITE"]}
