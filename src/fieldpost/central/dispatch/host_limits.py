"""Deliveries to one host, limited over all subscriptions of a node.

Claims are planned, so that a node does not claim notifications that it would have to give back: the subscriptions with
due notifications share the room that their host has, and take turns where it is less than one delivery each. A
subscription whose host is not known yet may claim too much; the rest is given back, and from then on it takes part.

Probes of blocked subscriptions count too. Where a host has no room for one, it is put off, and up to a quarter of the
host's places is kept free for probes until they were made: deliveries to others cannot keep a subscription blocked.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.core.delivery.routing import DeliveryPath
from fieldpost.core.delivery.slots import HostShares, share_room


class HostLimits:
    """Counts the attempts in progress by host."""

    def __init__(self, host_max: int) -> None:
        self._host_max = host_max
        self._busy: Counter[str] = Counter()
        self._ready: dict[str, dict[str, None]] = {}
        """The delivery keys with due notifications, by host."""
        self._shared: set[str] = set()
        """Hosts with several of them, as of the last refresh."""
        self._idle: set[str] = set()
        """Those of them for which nothing was found when their turn came."""
        self._last: dict[str, str] = {}
        """The key at which the turns of each crowded host have arrived."""
        self._short: dict[str, list[str]] = {}
        """Hosts whose keys can claim less than their share, with those that have their turn, in order."""
        self._put_off: dict[str, dict[str, None]] = {}
        """The subscriptions whose probes found no room at their host, by host."""

    def learn(self, hosts: Mapping[str, str]) -> None:
        """Use these delivery keys with due notifications and their hosts, as a refresh found them."""
        self._ready = {}
        for key, host in hosts.items():
            self._ready.setdefault(host, {})[key] = None
        self._shared = {host for host, keys in self._ready.items() if len(keys) > 1}
        self._idle.clear()
        self._short.clear()
        self._last = {host: key for host, key in self._last.items() if host in self._ready}

    def plan(self, per_key: int, blocked: Collection[str]) -> HostShares:
        """The claims that each key may make now; `per_key` is the share of a key. `blocked` keys claim nothing."""
        none: set[str] = set()
        most: dict[str, int] = {}
        self._short.clear()
        for host in self._ready.keys() & self._crowded(per_key):
            found, room = self._ready[host], self._host_max - self._busy[host] - self._kept(host)
            if len(found) == 1 and room >= per_key:  # as of most
                most |= dict.fromkeys(found, room)
                continue
            keys = [key for key in found if key not in blocked]
            shares = share_room(keys, room, self._last.get(host, ""), self._idle)
            if keys and (len(shares) < len(keys) or shares[keys[0]] < per_key):
                self._short[host] = list(shares)
            none.update(key for key in keys if key not in shares)
            most |= shares
        return HostShares(none, most, self._host_max)

    def note_claimed(self, plan: HostShares, counts: Mapping[str, int], *, is_all: bool) -> bool:
        """Learn from a claim by this plan, which found all that there was or left some; whether other keys have their
        turn now."""
        for host, keys in self._short.items():
            self._last[host] = next((key for key in reversed(keys) if counts.get(key)), self._last.get(host, ""))
        missed = {key for key in plan.most if not counts.get(key)} - self._idle if is_all else set()
        self._idle |= missed
        return bool(missed) and not self._idle.issuperset(plan.blocked)

    def without_room(self, due: Collection[str]) -> set[str]:
        """The subscriptions with due probes that are still deferred."""
        found: set[str] = set()
        for host, waiting in list(self._put_off.items()):
            keys = [key for key in waiting if key in due]
            if keys:
                self._put_off[host] = dict.fromkeys(keys)
                found.update(keys[max(0, self._host_max - self._busy[host]) :])
            else:
                del self._put_off[host]
        return found

    def take(self, running: RunningAttempt) -> bool:
        """Count the attempt, unless its host is at its limit."""
        host, key = _host(running), running.delivery_key
        if host is None:
            return True
        if self._busy[host] >= self._host_max:
            if running.is_probe:
                self._put_off.setdefault(host, {})[key] = None
            else:
                self._ready.setdefault(host, {})[key] = None
                self._short.setdefault(host, [])
            return False
        self._busy[host] += 1
        if running.is_probe and host in self._put_off:
            self._put_off[host].pop(key, None)
            if not self._put_off[host]:
                del self._put_off[host]
        if 2 * self._busy[host] > self._host_max:  # it may become short before the next refresh
            self._ready.setdefault(host, {})[key] = None
        return True

    def give_back(self, ended: Sequence[RunningAttempt]) -> bool:
        """These attempts, which were counted, have ended; whether notifications waited for their hosts."""
        hosts = Counter(host for running in ended if (host := _host(running)) is not None)
        self._busy -= hosts
        return not hosts.keys().isdisjoint(self._short)

    def _crowded(self, per_key: int) -> Set[str]:
        """The hosts that may lack room. For an idle one with one subscription, `default` is the limit."""
        if per_key > self._host_max:
            return self._ready.keys()
        return self._shared | self._busy.keys() | self._put_off.keys()

    def _kept(self, host: str) -> int:
        """How many places of the host are kept free for probes."""
        return min(len(self._put_off.get(host, ())), max(1, self._host_max // 4))


def _host(running: RunningAttempt) -> str | None:
    return running.path.limits.host if isinstance(running.path, DeliveryPath) else None
