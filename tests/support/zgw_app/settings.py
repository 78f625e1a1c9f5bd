"""Settings of the project. Its database is on the tests' PostgreSQL: a table of the library has an array column."""

import os
from urllib.parse import parse_qsl, urlsplit

_URL = urlsplit(os.environ["ZGW_APP_DATABASE"])
_QUERY = dict(parse_qsl(_URL.query))

SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "zgw_app.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "rest_framework",
    "solo",
    "simple_certmanager",
    "zgw_consumers",
    "notifications_api_common",
    "zgw_app",
]
# Tables are created from the models: hundreds of migrations would take longer than the tests.
MIGRATION_MODULES = {name.rpartition(".")[2]: None for name in INSTALLED_APPS}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _URL.path.lstrip("/"),
        "USER": _URL.username or "",
        "PASSWORD": _URL.password or "",
        "HOST": _URL.hostname or _QUERY.get("host", ""),
        "PORT": _URL.port or _QUERY.get("port", ""),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
FORCE_SCRIPT_NAME = None
IS_HTTPS = False
SITE_DOMAIN = os.environ["ZGW_APP_DOMAIN"]
NOTIFICATIONS_SOURCE = "zgw-app"
LOG_NOTIFICATIONS_IN_DB = True
REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["djangorestframework_camel_case.render.CamelCaseJSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["djangorestframework_camel_case.parser.CamelCaseJSONParser"],
    "UNAUTHENTICATED_USER": None,
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django.request": {"handlers": ["stderr"], "level": "ERROR"}},
}
"""Tracebacks of requests that failed, for the output of the test."""
