"""Every dialect against the public contract of providers, with upstreams that speak it byte for byte."""

import pytest

from holdfast_lab.contracts import PROVIDER_CHECKS, run_provider_check
from tests.requirements import requirement
from tests.support.dialects.anthropic import ANTHROPIC
from tests.support.dialects.bedrock import BEDROCK
from tests.support.dialects.gemini import GEMINI
from tests.support.dialects.ollama import OLLAMA
from tests.support.dialects.openai import OPENAI
from tests.support.dialects.responses import RESPONSES

DIALECTS = {dialect.name: dialect for dialect in (OPENAI, RESPONSES, ANTHROPIC, GEMINI, OLLAMA, BEDROCK)}


@requirement("upstream.contract")
@pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", DIALECTS)
async def test_every_dialect_keeps_the_contract_of_providers(name, check):
    """Whatever an upstream speaks, an answer ends in one way, and nothing of it is lost."""
    await run_provider_check(check, DIALECTS[name].open())
