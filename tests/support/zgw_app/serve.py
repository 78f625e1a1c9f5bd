"""The process of the project: create its tables, configure the library, serve on the given port."""

import os
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "zgw_app.settings")


class Server(ThreadingMixIn, WSGIServer):
    """Each request in a thread: central calls back while the project waits for it."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def main(port: int) -> None:
    import django
    from celery import Celery

    app = Celery("zgw_app", set_as_current=True)
    app.conf.update(task_always_eager=True, task_eager_propagates=False)
    django.setup()
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from notifications_api_common.models import NotificationsConfig
    from zgw_consumers.models import Service

    call_command("migrate", run_syncdb=True, verbosity=0)
    service = Service.objects.create(
        slug="fieldpost",
        label="Fieldpost",
        api_type="nrc",
        api_root=os.environ["ZGW_APP_API_ROOT"],
        client_id=os.environ["ZGW_APP_CLIENT_ID"],
        secret=os.environ["ZGW_APP_SECRET"],
        user_id="zgw-app",
        user_representation="zgw-app",
    )
    config = NotificationsConfig.get_solo()
    config.notifications_api_service = service
    config.save()
    with make_server("127.0.0.1", port, get_wsgi_application(), Server, Quiet) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
