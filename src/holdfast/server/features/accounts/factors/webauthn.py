"""The answers of passkeys (WebAuthn), checked by the library of Yubico. Loaded when the first passkey is used."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

from fido2.server import Fido2Server
from fido2.utils import websafe_encode
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from ..people.accounts import Passkey

logging.getLogger("fido2").setLevel(logging.WARNING)  # it tells of each passkey, as the audit log does
_VERIFIED = UserVerificationRequirement.REQUIRED
"""The device checks who uses it, with a PIN or a finger: a passkey is two factors."""


class PasskeySite(NamedTuple):
    """For whom passkeys are: the name of the host, and the only origin whose answers count."""

    host: str
    origin: str


class AddedPasskey(NamedTuple):
    """A new passkey: its id, its public data, and its count."""

    id: str
    data: str
    counter: int


def options_to_add(
    site: PasskeySite, account: str, name: str, known: Sequence[Passkey], challenge: bytes
) -> dict[str, Any]:
    """Return what a browser needs to make a passkey."""
    options, _ = _server(site).register_begin(
        PublicKeyCredentialUserEntity(id=account.encode(), name=name, display_name=name),
        [_credential(each) for each in known],
        resident_key_requirement=ResidentKeyRequirement.REQUIRED,
        user_verification=_VERIFIED,
        challenge=challenge,
    )
    return _plain(options.public_key)


def options_to_sign_in(site: PasskeySite, challenge: bytes) -> dict[str, Any]:
    """Return what a browser needs to sign in with any passkey for this site."""
    options, _ = _server(site).authenticate_begin(user_verification=_VERIFIED, challenge=challenge)
    return _plain(options.public_key)


def check_added(site: PasskeySite, challenge: bytes, answer: dict[str, Any]) -> AddedPasskey:
    """Return a new passkey. `ValueError`, or another error of decoding, if the answer proves nothing."""
    made = _server(site).register_complete(_state(challenge), answer)
    if made.credential_data is None:
        raise ValueError("The answer has no credential.")
    data = made.credential_data
    return AddedPasskey(websafe_encode(data.credential_id), b64encode(data).decode(), made.counter)


def check_used(
    site: PasskeySite, challenge: bytes, known: Sequence[Passkey], answer: dict[str, Any]
) -> tuple[str, int]:
    """Return the id and the count of the passkey that has signed. `ValueError` and others if none has."""
    used = _server(site).authenticate_complete(_state(challenge), [_credential(each) for each in known], answer)
    counter = AuthenticationResponse.from_dict(answer).response.authenticator_data.counter
    return websafe_encode(used.credential_id), counter


def _server(site: PasskeySite) -> Fido2Server:
    entity = PublicKeyCredentialRpEntity(id=site.host, name="Holdfast")
    return Fido2Server(entity, verify_origin=lambda origin: origin == site.origin)


def _credential(passkey: Passkey) -> AttestedCredentialData:
    return AttestedCredentialData(b64decode(passkey.data))


def _state(challenge: bytes) -> dict[str, Any]:
    return {"challenge": websafe_encode(challenge), "user_verification": _VERIFIED}


def _plain(options: Any) -> dict[str, Any]:
    """Return options as JSON has them: bytes as base64url."""
    plain: dict[str, Any] = json.loads(json.dumps(dict(options), default=dict))
    return plain
