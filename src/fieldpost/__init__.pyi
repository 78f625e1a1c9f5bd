from fieldpost.core.errors import ConfigError as ConfigError
from fieldpost.core.errors import Conflict as Conflict
from fieldpost.core.errors import FieldpostError as FieldpostError
from fieldpost.core.errors import InvalidInput as InvalidInput
from fieldpost.core.errors import NotFound as NotFound
from fieldpost.core.errors import OperationFailed as OperationFailed
from fieldpost.core.errors import Unavailable as Unavailable
from fieldpost.core.events.signature import InvalidWebhook as InvalidWebhook
from fieldpost.core.events.signature import VerifiedWebhook as VerifiedWebhook
from fieldpost.core.ids import CallId as CallId
from fieldpost.core.ids import NotificationId as NotificationId
from fieldpost.core.sites.message import CallRecord as CallRecord
from fieldpost.core.sites.message import CallStatus as CallStatus
from fieldpost.outbox.outbox import Outbox as Outbox
from fieldpost.outbox.receiver import verify_webhook as verify_webhook
from fieldpost.site.notify import NotificationStatus as NotificationStatus
from fieldpost.site.site import Site as Site

__version__: str
