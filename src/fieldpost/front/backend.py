"""The parts of central that the front uses."""

from dataclasses import dataclass, field

from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.watch import Watch
from fieldpost.core.setting import EffectiveSettings
from fieldpost.core.sites.node import SiteNode
from fieldpost.front.allowance import Allowances, ReceiptAllowances
from fieldpost.front.change_feed import ChangeFeed
from fieldpost.front.connections import PolledLink
from fieldpost.front.open_links import OpenLinks
from fieldpost.front.options import FrontOptions


@dataclass(frozen=True, slots=True)
class Backend:
    operate: Operate
    watch: Watch
    ingest: Ingest
    allowances: Allowances
    commands: CommandSender
    change_feed: ChangeFeed
    open_links: OpenLinks
    receipt_allowances: ReceiptAllowances
    options: FrontOptions = field(default_factory=FrontOptions)
    effective_settings: EffectiveSettings = field(default_factory=EffectiveSettings)
    """The settings of this node, for display."""
    polled: dict[SiteNode, PolledLink] = field(default_factory=dict)
    """The control connections of nodes of sites that poll by POST."""
