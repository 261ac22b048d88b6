"""Sends spans to a collector, as the standard `OTEL_*` variables say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ... import __version__
from ..config.settings import SettingsError

LAST_SPANS = 3.0
"""Seconds for the last spans at a shutdown. The server does not wait longer for a collector that is away."""
EXPORTER, PROTOCOL = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


def tracer_provider() -> TracerProvider:
    """Return what makes spans, and sends them in batches by a thread of its own.

    The SDK reads the address of the collector, the sampler, the limits and the attributes of the service from the
    environment. What is set there wins over our defaults.
    """
    _check_environment()
    ours = Resource({"service.name": "holdfast", "service.version": __version__, "telemetry.sdk.language": "python"})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    if os.environ.get(EXPORTER, "otlp") != "none":
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _check_environment() -> None:
    """Refuse what the standard allows and this server cannot do."""
    exporter = os.environ.get(EXPORTER, "otlp")
    if exporter not in ("otlp", "none"):
        raise SettingsError(f"{EXPORTER} is {exporter!r}. Traces are sent by OTLP only: set it to otlp or none.")
    for name in (TRACES_PROTOCOL, PROTOCOL):
        if (protocol := os.environ.get(name, "http/protobuf")) != "http/protobuf":
            raise SettingsError(
                f"{name} is {protocol!r}. Traces are sent over HTTP only: set it to http/protobuf, and "
                "OTEL_EXPORTER_OTLP_ENDPOINT to the collector's port for HTTP, which is 4318 in most cases."
            )


async def send_the_rest(provider: TracerProvider) -> None:
    """Send what was not sent yet, and end the thread. A collector that is away is not waited for."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="holdfast-traces", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_SPANS):
            await done.wait()
