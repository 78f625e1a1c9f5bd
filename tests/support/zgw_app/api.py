"""The project's API, its callback for notifications, and the actions that a test asks it for."""

import base64
import io
import json

import jwt
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from djangorestframework_camel_case.util import underscoreize
from notifications_api_common.api.serializers import NotificatieSerializer
from notifications_api_common.models import FailedNotification, NotificationsConfig, Subscription
from notifications_api_common.tasks import send_notification
from notifications_api_common.viewsets import NotificationViewSetMixin
from rest_framework import serializers, viewsets
from zds_client import Client, ClientAuth
from zgw_app.models import KANAAL_ZAKEN, Ontvangen, Zaak


class ZaakSerializer(serializers.HyperlinkedModelSerializer):
    class Meta:
        model = Zaak
        fields = ("url", "bronorganisatie", "object_type")


class ZaakViewSet(NotificationViewSetMixin, viewsets.ModelViewSet):
    queryset = Zaak.objects.all()
    serializer_class = ZaakSerializer
    notifications_kanaal = KANAAL_ZAKEN


@csrf_exempt
def receive(request: HttpRequest) -> HttpResponse:
    """The callback: rejects a wrong Authorization, parses with the library's serializer, answers 204."""
    service = NotificationsConfig.get_solo().notifications_api_service
    try:
        jwt.decode(request.headers["Authorization"].removeprefix("Bearer "), service.secret, algorithms=["HS256"])
    except (KeyError, jwt.PyJWTError):
        return HttpResponse(status=403)
    read = NotificatieSerializer(data=underscoreize(json.loads(request.body)))
    read.is_valid(raise_exception=True)
    Ontvangen.objects.create(body=request.body)
    return HttpResponse(status=204)


def received(request: HttpRequest) -> JsonResponse:
    bodies = [base64.b64encode(bytes(one.body)).decode() for one in Ontvangen.objects.order_by("pk")]
    return JsonResponse({"bodies": bodies})


@csrf_exempt
def register_kanalen(request: HttpRequest) -> HttpResponse:
    out = io.StringIO()
    call_command("register_kanalen", stdout=out, stderr=out)
    return HttpResponse(out.getvalue())


@csrf_exempt
def subscribe(request: HttpRequest) -> JsonResponse:
    made = Subscription.objects.create(
        identifier="own",
        callback_url=request.build_absolute_uri("/receive"),
        client_id="own",
        secret="own",
        channels=["zaken"],
    )
    made.register()
    return JsonResponse({"url": made._subscription})


@csrf_exempt
def resend(request: HttpRequest) -> JsonResponse:
    """Send again the notifications that the library kept because it gave up on them."""
    failed = list(FailedNotification.objects.all())
    for one in failed:
        send_notification.delay(one.message, one.pk)
    return JsonResponse({"sent": len(failed), "left": FailedNotification.objects.count()})


@csrf_exempt
def use_zds_client(request: HttpRequest) -> JsonResponse:
    """By operation id: list, create, change, delete and publish. The client insists on 201 for what it creates."""
    service = NotificationsConfig.get_solo().notifications_api_service
    auth = ClientAuth(service.client_id, service.secret)
    client = Client(api_root=service.api_root, oas_location="schema/openapi.yaml", auth=auth)
    made = client.create("kanaal", {"naam": "besluiten", "documentatieLink": "https://a.example/#b", "filters": []})
    callback = {"callbackUrl": request.build_absolute_uri("/receive"), "auth": request.headers["X-Auth"]}
    abonnement = client.create("abonnement", {**callback, "kanalen": [{"naam": "besluiten", "filters": {}}]})
    notification = {
        "kanaal": "besluiten",
        "hoofdObject": "https://besluiten.example.nl/1",
        "resource": "besluit",
        "resourceUrl": "https://besluiten.example.nl/1",
        "actie": "create",
        "aanmaakdatum": "2019-03-27T09:00:00Z",
        "kenmerken": {},
    }
    steps = {
        "kanalen": [one["naam"] for one in client.list("kanaal")],
        "filters": client.update("kanaal", {**made, "filters": ["a"]}, url=made["url"])["filters"],
        "read": client.retrieve("abonnement", url=abonnement["url"]) == abonnement,
        "patched": client.partial_update("abonnement", {"auth": callback["auth"]}, url=abonnement["url"]) == abonnement,
        "published": client.create("notificaties", notification) == notification,
    }
    client.delete("abonnement", url=abonnement["url"])
    steps["left"] = len(client.list("abonnement"))
    return JsonResponse(steps)
