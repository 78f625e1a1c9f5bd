"""Create the tables of the outbox."""

from django.db import migrations

from fieldpost.outbox.integrations.django.operations import CreateOutboxTables


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    dependencies = ()
    operations = (CreateOutboxTables(),)
