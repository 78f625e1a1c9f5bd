"""The project's addresses."""

from django.urls import include, path
from rest_framework.routers import DefaultRouter
from zgw_app import api

router = DefaultRouter(trailing_slash=False)
router.register("zaken", api.ZaakViewSet)

urlpatterns = [
    path("", include(router.urls)),
    path("receive", api.receive),
    path("received", api.received),
    path("do/register-kanalen", api.register_kanalen),
    path("do/subscribe", api.subscribe),
    path("do/resend", api.resend),
    path("do/zds-client", api.use_zds_client),
    path("ref/", include("notifications_api_common.urls")),
]
