"""What stands behind the front."""

from dataclasses import dataclass, field

from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.watch import Watch
from fieldpost.core.setting import InForce
from fieldpost.front.allowance import Allowances
from fieldpost.front.change_feed import Pulse
from fieldpost.front.command_sender import Errands
from fieldpost.front.connections import Links
from fieldpost.front.options import FrontOptions


@dataclass(frozen=True, slots=True)
class Rooms:
    operate: Operate
    watch: Watch
    ingest: Ingest
    allowances: Allowances
    links: Links
    errands: Errands
    pulse: Pulse
    options: FrontOptions = field(default_factory=FrontOptions)
    in_force: InForce = field(default_factory=InForce)
    """The settings that this node works by."""
