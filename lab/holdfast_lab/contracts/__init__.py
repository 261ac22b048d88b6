"""The contracts of every store and of every provider, as checks for the tests of their authors.

@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_my_store(check):
    await run_check(check, open_my_store)

@pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda check: check.__name__)
async def test_my_provider(check):
    await run_provider_check(check, open_my_upstream)
"""

from __future__ import annotations

from .providers import (
    PLAYED,
    PROVIDER_CHECKS,
    Ending,
    OpenUpstream,
    PlayedAnswer,
    ProviderCheck,
    UpstreamUnderTest,
    check_provider,
    run_provider_check,
)
from .stores import STORE_CHECKS, check_store, run_check
from .stores.case import Case, CaseCheck, OpenStore

__all__ = [
    "PLAYED",
    "PROVIDER_CHECKS",
    "STORE_CHECKS",
    "Case",
    "CaseCheck",
    "Ending",
    "OpenStore",
    "OpenUpstream",
    "PlayedAnswer",
    "ProviderCheck",
    "UpstreamUnderTest",
    "check_provider",
    "check_store",
    "run_check",
    "run_provider_check",
]
