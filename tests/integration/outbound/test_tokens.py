"""Which token endpoints may be contacted depends on who configured them."""

import pytest

from fieldpost.core.secret import Secret
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.tokens import Credential, NoToken
from support.token_server import token_server


@pytest.mark.dec("DEC-35")
async def test_token_endpoint_of_a_subscription_must_be_public_and_that_of_a_channel_may_be_private() -> None:
    outbound = Outbound()
    async with token_server() as server:
        credential = Credential(server.url, "client", Secret("kanarie"), "")
        assert (await outbound.admin_tokens.get(credential)).reveal() == server.given[0]
        # The same credential: the channel's token is not used for a subscription.
        with pytest.raises(NoToken, match=r"127\.0\.0\.1 is loopback"):
            await outbound.strict_tokens.get(credential)
        assert len(server.forms) == 1
    await outbound.close()


async def test_allowed_token_endpoint_of_a_subscription_is_contacted() -> None:
    outbound = Outbound(OutboundOptions("127.0.0.1"))
    async with token_server() as server:
        credential = Credential(server.url, "client", Secret("kanarie"), "")
        assert (await outbound.strict_tokens.get(credential)).reveal() == server.given[0]
    await outbound.close()
