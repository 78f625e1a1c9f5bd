"""A trigger under which audit entries cannot be written."""

from support.centre import Centre


def refuse_audit(centre: Centre, when: str = "new.kind = 'notify_deliver'") -> list[str]:
    """The statements that lay a trigger under which such entries cannot be written."""
    if not centre.is_postgresql:
        return [f"create trigger planted before insert on audit when {when} begin select raise(abort, 'planted'); end"]
    return [
        "create function planted() returns trigger language plpgsql as $$ begin raise exception 'planted'; end $$",
        f"create trigger planted before insert on audit for each row when ({when}) execute function planted()",
    ]


def allow_audit(centre: Centre) -> str:
    return "drop trigger planted on audit" if centre.is_postgresql else "drop trigger planted"
