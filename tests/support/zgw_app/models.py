"""The one model of the project."""

from django.db import models
from notifications_api_common.kanalen import Kanaal


class Zaak(models.Model):
    bronorganisatie = models.CharField(max_length=9, help_text="Wie de zaak behandelt")
    object_type = models.CharField(max_length=100, blank=True, help_text="Waar de zaak over gaat")


class Ontvangen(models.Model):
    """A notification that the project received."""

    body = models.BinaryField()


KANAAL_ZAKEN = Kanaal("zaken", main_resource=Zaak, kenmerken=("bronorganisatie", "object_type"))
