"""Messages to browsers, by the example of their standard."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.http_client.addresses import resolve_public
from holdfast.server.features.notifications.web_push import BrowserKeys, browser_keys, encrypted
from tests.requirements import requirement
from tests.support.push import bytes_of

PUBLIC = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6Tlz"
    "AC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)
"""RFC 8291, section 5."""


@requirement("push.private")
def test_the_example_of_the_standard_is_encrypted_byte_for_byte():
    """Browsers read nothing else."""
    own = ec.derive_private_key(int.from_bytes(bytes_of(SENDER), "big"), ec.SECP256R1())
    body = encrypted(
        b"When I grow up, I want to be a watermelon", browser_keys(PUBLIC, AUTH), own=own, salt=bytes_of(SALT)
    )

    assert BODY == base64.urlsafe_b64encode(body).decode()


@requirement("push.private")
@pytest.mark.parametrize(("public", "auth"), [(PUBLIC, "c2hvcnQ"), (PUBLIC[:-8], AUTH), ("A" * 87, AUTH), ("é", AUTH)])
def test_keys_that_are_none_are_refused(public, auth):
    """When the browser subscribes, and not when there is something to say."""
    with pytest.raises(ValueError):
        browser_keys(public, auth)
    assert isinstance(browser_keys(PUBLIC, AUTH), BrowserKeys)


INSIDE = [
    "127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "192.168.0.1",
    "100.64.0.1",
    "0.0.0.0",
    "::1",
    "fe80::1",
    "fd00::1",
    "::ffff:10.1.2.3",
    "2002:0a01:0203::1",
    "64:ff9b::a01:203",
    "64:ff9b:1::a01:203",
    "::7f00:1",
    "::ffff:0:7f00:1",
    "fec0::1",
    "224.0.0.1",
    "localhost",
]


@requirement("push.addresses")
@pytest.mark.parametrize("host", INSIDE)
async def test_an_address_inside_is_no_public_one(host):
    """The metadata of a cloud, the router, the server itself: none of them may hear from a person's webhook."""
    with pytest.raises(OSError, match="no public address"):
        await resolve_public(host, 443)
    assert "93.184.215.14" == (await resolve_public("93.184.215.14", 443))[0][4][0]
