"""Accounts: people, their keys, and how they sign in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from starlette.types import ASGIApp

from .....access import ANYONE
from ....config.loopback import is_loopback
from ....config.settings import Settings
from ....kit.chores import Chores
from ....kit.feature import Endpoint, Feature
from ....kit.request import Bodies
from ....running.running import Running
from ....secrets.sealer import Sealer
from ...audit.audit import Audit
from ...audit.refused_keys import GateRefusal
from ...sharing.shares import Shares
from ..auth import Gate, check_bind
from ..ended_keys import EndedKeys
from ..factors.passkeys import Passkeys
from ..factors.second_factors import SecondFactors
from ..keys import LOOK_EVERY, Keys
from ..oidc.opening import oidc_of
from ..people.people import People
from .keys import KeysApi
from .oidc import OidcApi
from .own_account import OwnAccountApi
from .passkeys import PasskeysApi
from .people import Erases, PeopleApi
from .second_factors import SecondFactorsApi
from .sign_in import SignInApi, SigningIn


class AccountsFeature(Feature):
    """People, groups and keys."""

    def __init__(
        self,
        bodies: Bodies,
        running: Running,
        settings: Settings,
        environ: Mapping[str, str],
        people: People,
        keys: Keys,
        shares: Shares,
        audit: Audit,
        erasing: Erases,
        sealer: Sealer,
        ended: EndedKeys,
    ) -> None:
        self._settings, self._environ, self._shares = settings, environ, shares
        self.people, self.keys = people, keys
        keys.on_end = ended.stop
        engine, store = running.engine, running.store
        signing_in = SigningIn(settings, people)
        factors, passkeys, oidc = SecondFactors(people, sealer), Passkeys(people, sealer), oidc_of(settings, environ)
        self.inner = (
            SignInApi(bodies, signing_in, people, keys, factors, engine, settings),
            OidcApi(signing_in, people, audit, settings, oidc),
            OwnAccountApi(bodies, signing_in, people, factors, passkeys),
            SecondFactorsApi(bodies, signing_in, people, factors),
            PasskeysApi(bodies, signing_in, people, passkeys),
            KeysApi(bodies, keys, engine, store, settings),
            PeopleApi(bodies, people, shares, erasing, store, settings),
        )

    def gate(
        self,
        app: ASGIApp,
        endpoints: Sequence[Endpoint],
        on_refusal: Callable[[GateRefusal], None],
        is_of_the_page: Callable[[str], bool],
    ) -> Gate:
        """Return the application, for those who may call it."""
        open_paths = [each.path for each in endpoints if each.who is ANYONE]
        return Gate(app, self._settings, self.keys, open_paths, on_refusal, self.people, is_of_the_page)

    async def start(self) -> None:
        """Read the keys and the accounts."""
        await self.check_access()

    async def check_access(self, *, can_wait: bool = False) -> None:
        """Read the keys, and refuse to start without keys or accounts on a public address.

        With `can_wait` the server starts all the same, closed to everyone, and waits for its first admin, who has the
        code in `people.first_admin`.
        """
        await self.keys.refresh()
        await self.people.callers.refresh()
        if can_wait and not is_loopback(self._settings.host) and not self.keys.is_needed:
            self.people.first_admin = await self.people.secrets.make("first_admin")
            self.keys.need()
        check_bind(self._settings, self.keys, self._environ)

    def begin(self, chores: Chores) -> None:
        """Apply what other nodes change, and forget what is old."""
        chores.every("keys", LOOK_EVERY, self.keys.refresh, longest_pause=1.0)
        chores.every("people", LOOK_EVERY, self._refresh, longest_pause=1.0)
        chores.by_one_node("old sign-ins", 3600.0, self._forget_old)

    async def _refresh(self) -> None:
        """Apply changed rights, and then end the responses that depended on them."""
        await self.people.callers.refresh()
        await self._shares.refresh()

    async def _forget_old(self) -> None:
        """Delete ended sign-ins, and old changes of rights, links and counts of wrong passwords."""
        people = self.people
        await people.callers.changes.forget()
        await people.sign_ins.forget_ended()
        await people.secrets.forget_old()
        await people.throttle.forget_old()
        await people.browsers.forget_old()
