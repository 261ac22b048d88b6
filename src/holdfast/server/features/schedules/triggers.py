"""Triggers: secret addresses whose calls start runs, each of them once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from ....engine.core import Core
from ....errors import BadRequest, Conflict, HoldfastError, NotFound, StoreUnavailable
from ....events import ErrorInfo
from ....ids import new_id
from ....runs.run import Run
from ....store import Idempotency, Store
from ....store.documents import DocumentGuard, Documents, IdempotencyKeys, Stored
from ....wires import native
from ....wires.openai import webhooks
from ...secrets.sealer import Sealer
from ...starting.rate_limit import StartRate
from .model import ScheduledAsk
from .unattended import StartsRuns, UnattendedRun

_PLACE = re.compile(r"\{\{\s*([\w.-]{1,200})\s*\}\}")
LARGEST_PAYLOAD = 100_000
"""Maximum size of the body of a call, in bytes."""


def filled_template(template: str, payload: bytes) -> str:
    """Return the prompt. `{{body}}` is the whole body; `{{a.b}}` is a field of a JSON body, or nothing.

    What is filled in is text, and is not read as a template again. The model cannot tell it from the owner's words.
    """
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise BadRequest("The body of a call is text or JSON, in UTF-8.") from None
    body = _json(payload)
    prompt = _PLACE.sub(lambda found: text if found[1] == "body" else _field(body, found[1]), template)
    if not prompt.strip():
        raise BadRequest("The prompt of the trigger is empty with this body.")
    if len(prompt) > 10 * LARGEST_PAYLOAD:
        raise BadRequest("The prompt of the trigger is too long with this body.", status=413, code="body_too_large")
    return prompt


def _json(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None


def _field(body: Any, path: str) -> str:
    """Return a field as text: nothing if it is not there, JSON if it is no text."""
    for name in path.split("."):
        if isinstance(body, dict):
            body = body.get(name)
        elif isinstance(body, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(body):
            body = body[int(name[:9])]
        else:
            return ""
    if body is None:
        return ""
    return body if isinstance(body, str) else msgspec.json.encode(body).decode()


MOST_TRIGGERS = 100
"""Maximum number of triggers of an owner."""
CALLS_PER_MINUTE = 30
"""Maximum number of calls of one trigger in a minute."""
MOST_CALLS_KEPT = 50
"""Number of calls that a trigger remembers."""
TOLERANCE = 300
"""Seconds by which the time of a signed call may be off."""
KEYS_LAST = 7 * 86400.0
"""Seconds for which a repeated call finds the chat of the first one. Its run is found as long as it is kept."""


class NewTrigger(ScheduledAsk, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trigger as a client writes it. Its prompt is a template."""

    signed: bool = False
    """Whether callers sign what they send. Otherwise the secret is in the address."""
    paused: bool = False


class TriggerCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one call."""

    at: float
    run_id: str = ""
    error: ErrorInfo | None = None


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger with its state."""

    asked: NewTrigger
    key: str = ""
    """The id of the API key that has made or changed it last; empty for a person."""
    calls: list[TriggerCall] = []
    """The last calls, the oldest first."""


class TriggerSecret(msgspec.Struct, frozen=True):
    """The secret of a trigger: a digest of the one in the address, or the sealed one of signatures.

    It is a document without an owner, so that no export has it. The id is that of the trigger.
    """

    digest: Annotated[str, msgspec.Meta(max_length=64)] = ""
    sealed: str = ""


class TriggerNotFound(NotFound):
    """No such trigger, a wrong secret or a wrong signature. All look the same."""

    code = "trigger_not_found"
    message = "There is no such trigger, or its secret or signature is wrong."


class TriggerPaused(Conflict):
    """The trigger is paused."""

    code = "trigger_paused"
    message = "This trigger is paused: calls start nothing."


class TriggerCalled(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a trigger as it came."""

    id: str
    body: bytes
    token: str = ""
    """The secret in the address; empty for a signed call."""
    key: str = ""
    """The id of the call: a repeated one starts nothing more."""
    timestamp: str = ""
    signatures: str = ""


class Triggers:
    """The triggers of a server."""

    def __init__(self, store: Store, engine: Core, starts: StartsRuns, sealer: Sealer) -> None:
        self._engine, self._starts, self._sealer = engine, starts, sealer
        self._all = Documents(store, "trigger", Trigger, now=engine.now)
        self._secrets = Documents(store, "trigger_secret", TriggerSecret, now=engine.now)
        self._keys = IdempotencyKeys(store, "trigger_key", now=engine.now)
        self._one_at_a_time = DocumentGuard(store, "triggers")
        self._rate = StartRate(CALLS_PER_MINUTE, engine, store)

    # of their owner

    async def of(self, owner: str) -> list[Stored[Trigger]]:
        """Return an owner's triggers, the newest first."""
        return [stored async for stored in self._all.all(owner=owner)]

    async def get(self, owner: str, id: str) -> Stored[Trigger]:
        """Return one of an owner's triggers."""
        if (stored := await self._all.get(id, owner=owner)) is None:
            raise TriggerNotFound
        return stored

    async def add(self, owner: str, key: str, asked: NewTrigger) -> tuple[Stored[Trigger], str]:
        """Add a trigger, and return its secret, which is shown once."""
        check = partial(self._all.require_room, owner, MOST_TRIGGERS, "trigger")
        id = new_id("trg")
        secret, kept = await self._new_secret(id, asked)
        trigger = Trigger(asked=asked, key=key)
        stored = await self._all.add_alone(id, trigger, check, among=self._one_at_a_time, owner=owner)
        await self._secrets.exchange(id, kept)
        return stored, secret

    async def replace(self, owner: str, key: str, id: str, asked: NewTrigger) -> Stored[Trigger]:
        """Replace what a trigger asks. Whether its calls are signed stays as it is."""

        def replaced(trigger: Trigger) -> Trigger:
            if asked.signed != trigger.asked.signed:
                message = "A trigger stays signed or unsigned. Make another one, and delete this one."
                raise BadRequest(message, param="signed")
            return replace(trigger, asked=asked, key=key)

        stored = await self._all.change(id, replaced, owner=owner)
        if stored is None:
            raise TriggerNotFound
        return stored

    async def rotate(self, owner: str, id: str) -> tuple[Stored[Trigger], str]:
        """Replace the secret of a trigger. The old one ends at once."""
        stored = await self.get(owner, id)
        secret, kept = await self._new_secret(id, stored.body.asked)
        await self._secrets.exchange(id, kept)
        return stored, secret

    async def delete(self, owner: str, id: str) -> None:
        """Delete a trigger. Its address answers no more."""
        await self.get(owner, id)
        await self._secrets.delete(id)
        await self._all.delete(id)

    async def _new_secret(self, id: str, asked: NewTrigger) -> tuple[str, TriggerSecret]:
        """Return a new secret, and what is stored of it."""
        if asked.signed:
            secret = webhooks.new_secret()
            return secret, TriggerSecret(sealed=await self._sealer.seal_text(sealed_trigger(id), secret.encode()))
        secret = secrets.token_urlsafe(32)
        return secret, TriggerSecret(digest=_digest(secret))

    async def forget_old(self) -> None:
        """Delete old keys of calls, and the secrets of triggers that were deleted with all data of their owner."""
        await self._keys.forget_old(self._engine.now() - KEYS_LAST)
        for id in [stored.id async for stored in self._secrets.all() if await self._all.get(stored.id) is None]:
            await self._secrets.delete(id)

    # calls

    async def call(self, called: TriggerCalled) -> Run:
        """Start the run of a call, or return the one that the same call has started before."""
        stored = await self._authentic(called)
        if stored.body.asked.paused:
            raise TriggerPaused
        digest = hashlib.sha256(called.body).hexdigest()
        known = Idempotency(stored.owner, f"trigger\n{stored.id}:{called.key or new_id('call')}", digest)
        if (run := await self._engine.repeated(known)) is not None:
            return run
        await self._rate.take(f"trigger {stored.id}")  # before anything is stored for the call
        session = new_id("ses")
        if called.key:
            session = await self._keys.claim(known, session)
        return await self._start(stored, called.body, known, session)

    async def _start(self, stored: Stored[Trigger], body: bytes, key: Idempotency, session: str) -> Run:
        asked = stored.body.asked
        order = UnattendedRun(
            owner=stored.owner,
            credential=stored.body.key,
            asked=asked,
            text=filled_template(asked.prompt, body),
            new_session="" if asked.session else session,
            title=asked.name,
            key=key,
        )
        now = self._engine.now()
        try:
            run = await self._starts.start(order)
        except HoldfastError as error:
            with suppress(StoreUnavailable):
                await self._note(stored.id, TriggerCall(at=now, error=error.info()))
            raise
        await self._note(stored.id, TriggerCall(at=now, run_id=run.id))
        return run

    async def _note(self, id: str, call: TriggerCall) -> None:
        def noted(trigger: Trigger) -> Trigger:
            if call.run_id and any(each.run_id == call.run_id for each in trigger.calls):
                return trigger
            return replace(trigger, calls=[*trigger.calls, call][-MOST_CALLS_KEPT:])

        await self._all.change(id, noted)

    async def _authentic(self, called: TriggerCalled) -> Stored[Trigger]:
        """Return the trigger of a call that has its secret. Whatever is wrong, the refusal is the same."""
        stored, secret = await self._all.get(called.id), await self._secrets.get(called.id)
        if stored is None or secret is None:
            raise TriggerNotFound
        if called.token:
            is_right = hmac.compare_digest(secret.body.digest.encode(), _digest(called.token).encode())
        else:
            is_right = await self._is_signed(called, secret.body)
        if not is_right:
            raise TriggerNotFound
        return stored

    async def _is_signed(self, called: TriggerCalled, secret: TriggerSecret) -> bool:
        at = called.timestamp
        if not (secret.sealed and called.key and at.isascii() and at.isdigit() and len(at) < 16):
            return False
        if abs(self._engine.now() - int(at)) > TOLERANCE:
            return False
        opened = await self._sealer.open_text(sealed_trigger(called.id), secret.sealed)
        return webhooks.is_signed(webhooks.key_of(opened.decode()), called.key, int(at), called.body, called.signatures)


def sealed_trigger(id: str) -> str:
    """Return the name under which the secret of a trigger is sealed."""
    return f"the secret of trigger {id}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def shown_call(call: TriggerCall) -> dict[str, object]:
    """Return a call as JSON."""
    return {
        "at": native.moment(call.at),
        "run_id": call.run_id or None,
        "error": None if call.error is None else {"code": call.error.code, "message": call.error.message},
    }
