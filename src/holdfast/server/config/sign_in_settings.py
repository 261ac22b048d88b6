"""Settings of access: API keys, trusted proxies, and the identity provider."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import msgspec

from ...access import AccountRole


class KeySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[keys]]` table: an API key. Each name is an owner with its own sessions."""

    name: str
    key_env: str = ""
    sha256: str = ""
    """The key's SHA-256 in hexadecimal, in place of the key itself."""
    admin: bool = False
    """May change the settings."""


class IdentityRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rules for accounts of people whom another system has recognised."""

    create: AccountRole | None = None
    """The role of an account that is made at the first sign-in; None to make no accounts."""
    roles: dict[str, AccountRole] = {}
    """Roles by groups of the identity provider. The highest counts; without one the role stays."""
    groups: dict[str, str] = {}
    """Names of groups here, by groups of the identity provider. A person is in these, and in others as an admin set."""


class ProxySettings(IdentityRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The `[proxy]` table: reverse proxies that are trusted, and the headers in which they name the person."""

    addresses: tuple[str, ...] = ()
    """Addresses or networks of the proxies. `X-Forwarded-For` counts only from them."""
    user_header: str = ""
    """The header with the person's name. The proxy must remove it from what clients send."""
    groups_header: str = ""
    """The header with the person's groups, with commas between them."""


class OidcSettings(IdentityRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The `[oidc]` table: the OpenID Connect provider with which people sign in."""

    issuer: str
    """The address of the provider, exactly as its tokens name it."""
    client_id: str
    client_secret_env: str = ""
    """The variable with the client's secret; without one, the client is public and has PKCE alone."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = "groups"
    """The claim of the ID token with the person's groups."""
    name: str = "single sign-on"
    """What the page calls it."""
    only: bool = False
    """Whether passwords are refused."""


def about_sign_in(proxy: ProxySettings, oidc: OidcSettings | None, public_url: str) -> Iterator[str]:
    """Yield the problems of the settings of proxies and of the identity provider."""
    for address in proxy.addresses:
        try:
            ipaddress.ip_network(address, strict=False)
        except ValueError:
            yield f"The setting `proxy.addresses` names {address!r}, which is no address and no network."
    if proxy.user_header and not proxy.addresses:
        yield "The setting `proxy.user_header` needs `proxy.addresses`: without them anyone could send the header."
    if oidc is not None and not public_url:
        yield "The table `oidc` needs the setting `public_url`, the address to which the provider sends people back."
    if oidc is not None and not oidc.issuer.startswith(("https://", "http://")):
        yield f"The setting `oidc.issuer` must begin with https://, not {oidc.issuer!r}."
