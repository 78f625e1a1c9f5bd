"""Lists as given by a caller or a file (`ListSpec`), and the one check that turns them into lists."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fieldpost.core.alarm import check_severity
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.delivery.rate import Rate, parse_rate
from fieldpost.core.delivery.retry import RetryPolicy, parse
from fieldpost.core.delivery.routing import Directory, channel_of
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import LISTS_TYPE, NotificationList
from fieldpost.core.text import check_label, check_list_name, check_path_name
from fieldpost.core.wholes import check_members

TARGETS_MAX = 10_000
SITES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSpec:
    """A list before its check."""

    name: str
    type: str = "email"
    targets: Sequence[str]
    channel: str | None = None
    park_uncertain: bool = False
    retry: str | None = None
    allowed_sites: Sequence[str] | None = None
    severity: str | None = None
    rate: str | None = None
    secrets: Mapping[str, object] = field(default_factory=dict, repr=False)
    """New secrets of targets; the others stay."""
    place: str = ""
    """Its place in the file, for error messages."""
    target_places: Sequence[str] = ()
    """The place of each target; without it, the index of the target."""


def check(spec: ListSpec, adapters: Mapping[str, Adapter]) -> NotificationList:
    """The checked list; InvalidInput names the field, and the place in the file."""
    try:
        frame = _frame(spec, adapters)
        if spec.place and not spec.targets:
            raise no_targets()
        return replace(frame, targets=check_targets_of(frame, adapters, spec.targets, spec.target_places))
    except InvalidInput as error:
        raise _at_place_of(spec, error) from None


def _frame(spec: ListSpec, adapters: Mapping[str, Adapter]) -> NotificationList:
    """The list without its targets."""
    if spec.type == LISTS_TYPE:
        check_no_path(
            channel=spec.channel,
            retry=spec.retry,
            park_uncertain=spec.park_uncertain,
            severity=spec.severity,
            rate=spec.rate,
        )
    return NotificationList(
        name=check_path_name(check_list_name(spec.name), "list_name"),
        type=LISTS_TYPE if spec.type == LISTS_TYPE else adapter_of(adapters, spec.type).type,
        channel_name=check_channel_name(spec.channel),
        park_uncertain=spec.park_uncertain,
        retry=check_retry(spec.retry),
        allowed_sites=check_sites(spec.allowed_sites),
        severity=check_severity(spec.severity),
        rate=check_rate(spec.rate),
    )


def faults(spec: ListSpec, adapters: Mapping[str, Adapter]) -> Iterator[InvalidInput]:
    """All errors of the list, then those of each of its targets."""
    try:
        _frame(spec, adapters)
    except InvalidInput as error:
        yield at_place(spec.place, error)
    if spec.type == LISTS_TYPE:
        try:
            check_members(spec.name, spec.targets, spec.target_places)
        except InvalidInput as error:
            yield _at_place_of(spec, error)
        return
    adapter = adapters.get(spec.type)
    if adapter is None:
        return
    if not spec.targets:
        yield at_place(spec.place, no_targets())
    for number, address in enumerate(spec.targets):
        try:
            _check_target(adapter, address, number, spec.target_places)
        except InvalidInput as error:
            yield _at_place_of(spec, error)


def adapter_of(adapters: Mapping[str, Adapter], type_: str) -> Adapter:
    """The adapter of this type; InvalidInput names the known types."""
    adapter = adapters.get(type_)
    if adapter is None:
        known = ", ".join(sorted({*adapters, LISTS_TYPE}))
        raise InvalidInput("type.unknown", f"no adapter of type {type_[:64]!r}; known types: {known}", field="type")
    return adapter


def check_channel_name(name: str | None) -> str | None:
    return None if name is None else check_label(name, "channel")


def check_retry(text: str | None) -> RetryPolicy | None:
    return None if text is None else parse(text)


def check_rate(text: object) -> Rate | None:
    return None if text is None else parse_rate(text)


def check_sites(sites: Iterable[str] | None) -> tuple[str, ...] | None:
    if sites is None:
        return None
    checked = sorted({check_label(site, "allowed_sites") for site in sites})
    if not checked:
        raise InvalidInput(
            "list.no_sites",
            "allowed_sites must name at least one site",
            hint="omit it or set it to null to accept notifications from every site",
            field="allowed_sites",
        )
    if len(checked) > SITES_MAX:
        raise InvalidInput(
            "list.too_many", f"allowed_sites must be at most {SITES_MAX}, got {len(checked)}", field="allowed_sites"
        )
    return tuple(checked)


def check_no_path(**given: object) -> None:
    """Raise InvalidInput if a list of lists is given a property of delivery: the lists that it names have those."""
    for name, value in given.items():
        if value:
            raise InvalidInput(
                "list.no_path",
                f"{name} must not be set for a list of lists: each list that it names has its own",
                field=name,
            )


def check_targets_of(
    wanted: NotificationList, adapters: Mapping[str, Adapter], targets: Iterable[str], places: Sequence[str] = ()
) -> tuple[str, ...]:
    """Checked targets for this list: addresses, or the names of lists."""
    if wanted.type == LISTS_TYPE:
        return check_members(wanted.name, targets, places)
    return check_targets(adapter_of(adapters, wanted.type), targets, places)


def check_targets(adapter: Adapter, targets: Iterable[str], places: Sequence[str] = ()) -> tuple[str, ...]:
    """Normalized targets, each addressee once, in the spelling that was first."""
    checked: dict[str, str] = {}
    for number, address in enumerate(targets):
        if number >= TARGETS_MAX:
            raise InvalidInput("list.too_many", f"targets must be at most {TARGETS_MAX}", field="targets")
        target = _check_target(adapter, address, number, places)
        checked.setdefault(adapter.target_key(target), target)
    return tuple(checked.values())


def _check_target(adapter: Adapter, address: str, number: int, places: Sequence[str]) -> str:
    try:
        return adapter.check_target(address)
    except InvalidInput as error:
        field = places[number] if number < len(places) else f"targets[{number}]"
        raise InvalidInput(error.code, f"{field}: {error.message}", hint=error.hint, field=field) from None


def no_targets() -> InvalidInput:
    """The error for a list in a file without targets, and for a change that takes the last targets of a list."""
    return InvalidInput("list.empty", "a list needs at least one target", field="targets")


def check_channel(directory: Directory, wanted: NotificationList) -> None:
    """Raise InvalidInput unless the channel of this list exists and has its type."""
    if wanted.channel_name is None:
        return
    channel = channel_of(directory, wanted)
    if channel is None:
        raise InvalidInput("channel.unknown", f"channel {wanted.channel_name!r} does not exist", field="channel")
    if channel.type != wanted.type:
        raise InvalidInput(
            "channel.other_type",
            f"channel {wanted.channel_name!r} is of type {channel.type!r}, not {wanted.type!r}",
            field="channel",
        )


def _at_place_of(spec: ListSpec, error: InvalidInput) -> InvalidInput:
    """The error with its place, unless it names the place of a target already."""
    return error if error.field in spec.target_places else at_place(spec.place, error)


def at_place(place: str, error: InvalidInput) -> InvalidInput:
    """The same error with its place in the file."""
    if not place:
        return error
    field = f"{place}.{error.field}" if error.field else place
    return InvalidInput(error.code, f"{place}: {error.message}", hint=error.hint, field=field)
