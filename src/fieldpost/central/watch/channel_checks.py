"""Checks of channels and lists: valid settings that are probably a mistake, before a notification parks for them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import lists
from fieldpost.core.delivery.adapter import CallbackReceipts, SecretTargets, SettingsWarner, TargetWarner
from fieldpost.core.delivery.receipt import ReceiptMissing
from fieldpost.core.errors import FieldpostError
from fieldpost.core.lists import Channel, NotificationList

_MISSING = {
    ReceiptMissing.DELIVERED: "counts as delivered",
    ReceiptMissing.RETRY: "is sent to again",
    ReceiptMissing.PARK: "fails",
}


@dataclass(frozen=True, slots=True)
class ChannelWarning:
    """One finding, about a channel or about a target of a list."""

    text: str
    channel: str | None = None
    list_name: str | None = None


class ChannelChecks:
    """Runs the checks; without adapters there are none."""

    def __init__(self, store: Store, adapters: Mapping[str, object], keyring: Keyring, public_url: str) -> None:
        self._store = store
        self._adapters = adapters
        self._keyring = keyring
        self._public_url = public_url
        self._of_secrets: dict[str, list[str]] = {}
        """The warnings by sealed secret: a secret is opened once."""

    async def warnings(self) -> list[ChannelWarning]:
        """All findings, those of channels first."""
        if not self._adapters:
            return []
        directory = await self._store.read(lists.directory)
        found = [one for channel in directory.channels.values() for one in self._of_channel(channel)]
        names = [one.name for one in directory.lists.values() if self._has_labels(one)]
        labels = await self._store.read(lists.labels, names) if names else {}
        self._forget({sealed for of_list in labels.values() for sealed in of_list.values()})
        found += [one for name in sorted(labels) for one in self._of_list(directory.lists[name], labels[name])]
        for name, address, moved_to in await self._store.read(lists.moved):
            text = f"list {name}: target {address!r} has moved to {moved_to!r}; replace it in the list"
            found.append(ChannelWarning(text, list_name=name))
        return found

    def _of_channel(self, channel: Channel) -> Iterator[ChannelWarning]:
        adapter = self._adapters.get(channel.type)
        if isinstance(adapter, SettingsWarner):
            for text in adapter.warnings(channel.settings):
                yield ChannelWarning(f"channel {channel.name}: {text}", channel=channel.name)
        if not self._public_url and isinstance(adapter, CallbackReceipts) and adapter.needs_callbacks(channel.settings):
            yield ChannelWarning(
                f"channel {channel.name} gets no receipts, because its gateway reports to a URL of central: set"
                f" front.public_url. Until then, each target {_MISSING[channel.receipt_missing]} after"
                f" {channel.receipt_wait_s:g} s",
                channel=channel.name,
            )

    def _has_labels(self, one: NotificationList) -> bool:
        return isinstance(self._adapters.get(one.type), SecretTargets)

    def _of_list(self, one: NotificationList, labels: Mapping[str, str | None]) -> Iterator[ChannelWarning]:
        adapter = self._adapters[one.type]
        assert isinstance(adapter, SecretTargets)
        for address, sealed in labels.items():
            if sealed is None:
                text = f"list {one.name}: target {address!r} has no {adapter.target_secret_name}, so notifications park"
                yield ChannelWarning(text, list_name=one.name)
            elif isinstance(adapter, TargetWarner):
                for text in self._of_secret(adapter, one.name, address, sealed):
                    yield ChannelWarning(f"list {one.name}: target {address!r}: {text}", list_name=one.name)

    def _of_secret(self, adapter: TargetWarner, list_name: str, address: str, sealed: str) -> list[str]:
        if sealed not in self._of_secrets:
            try:
                opened = self._keyring.open_targets(list_name, {address: sealed})
            except FieldpostError:  # unreadable secrets have a separate issue
                return []
            self._of_secrets[sealed] = adapter.target_warnings(opened[address])
        return self._of_secrets[sealed]

    def _forget(self, current: set[str | None]) -> None:
        """Forget all others than these."""
        self._of_secrets = {sealed: texts for sealed, texts in self._of_secrets.items() if sealed in current}
