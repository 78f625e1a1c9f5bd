"""A Django application whose migration creates the tables of the outbox.

    INSTALLED_APPS = [..., "fieldpost.outbox.integrations.django"]

`manage.py migrate` then creates them in the default database, `manage.py migrate --database=…` in another one. To keep
them out of a database, answer False for the application `fieldpost_outbox` in a router's `allow_migrate`.
"""
