"""Sites: the mirror of their cached calls, intents for them, and their health."""

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    pass
