"""What the features need for their calls over HTTP."""

from __future__ import annotations

from typing import NamedTuple

from ...concurrency.closing import Closing
from ..config.current import CurrentSettings
from .request import Bodies
from .run_responses import Answers
from .streams import Streams


class Http(NamedTuple):
    """The bodies of requests, event streams, and runs as answers."""

    bodies: Bodies
    streams: Streams
    answers: Answers


def http_of(current: CurrentSettings, closing: Closing) -> Http:
    """Return what all features share."""
    streams = Streams(current, closing)
    return Http(Bodies(current), streams, Answers(streams, current.now.failed_status))
