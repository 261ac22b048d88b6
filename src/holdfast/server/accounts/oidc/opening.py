"""The identity provider of the settings, if the extra that it needs is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...config.settings import Settings, SettingsError

if TYPE_CHECKING:
    from .provider import OidcProvider


def oidc_of(settings: Settings, environ: Mapping[str, str]) -> OidcProvider | None:
    """Return the provider of the settings; None if there is none."""
    if settings.oidc is None:
        return None
    try:
        from .provider import OidcProvider  # noqa: PLC0415 - an extra that most servers do not have
    except ImportError:
        raise SettingsError("The table `oidc` needs more packages: pip install 'holdfast[oidc]'.") from None
    return OidcProvider(settings.oidc, environ)
