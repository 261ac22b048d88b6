"""The conformance lab: judges any server of LLM answers by its URL, with an upstream of its own behind it.

async with Upstream(port=9100) as upstream:                     # the server must use this one as its provider
    lab = Lab(WIRES["openai-chat"](Http("http://127.0.0.1:8787/v1"), "m"), upstream)
    async for finding in judge(lab, SERVERS["any"]):
        print(finding.id, finding.verdict, finding.seen)
"""

from __future__ import annotations

from .checks import Check, Finding, Lab, Seen
from .http import Http
from .judging import CHECKS, judge, trouble
from .servers import SERVERS, ServerFacts
from .upstream import Upstream
from .wires import WIRES, Wire

__version__ = "0.1.0"

__all__ = [
    "CHECKS",
    "SERVERS",
    "WIRES",
    "Check",
    "Finding",
    "Http",
    "Lab",
    "Seen",
    "ServerFacts",
    "Upstream",
    "Wire",
    "judge",
    "trouble",
]
