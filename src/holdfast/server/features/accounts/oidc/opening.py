"""The identity provider of the settings, if the extra that it needs is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .....errors import how_to_install
from ....config.settings import Settings, SettingsError

if TYPE_CHECKING:
    from .provider import OidcProvider


def oidc_of(settings: Settings, environ: Mapping[str, str]) -> OidcProvider | None:
    """Return the provider of the settings; None if there is none."""
    if settings.oidc is None:
        return None
    if find_spec("joserfc") is None:
        raise SettingsError(f"The table `oidc` needs more packages: {how_to_install('oidc')}.")
    provider: OidcProvider = import_module(".provider", __package__).OidcProvider(settings.oidc, environ)
    return provider
