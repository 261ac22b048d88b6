"""Sends spans to a collector, by the standard `OTEL_*` variables."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ..... import __version__
from ....config.settings import SettingsError

LAST_SPANS = 3.0
"""Timeout of sending the last spans at a shutdown, in seconds."""
EXPORTER, PROTOCOL = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"


def tracer_provider() -> TracerProvider:
    """Return the provider of tracers, which sends spans in batches from a separate thread.

    The SDK reads the address of the collector, the sampler, the limits and the attributes of the service from the
    environment. These variables override our defaults.
    """
    _check_environment()
    ours = Resource({"service.name": "holdfast", "service.version": __version__, "telemetry.sdk.language": "python"})
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    if os.environ.get(EXPORTER, "otlp") != "none":
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _check_environment() -> None:
    """Refuse settings that the standard allows and this server does not support."""
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
    """Send the remaining spans, and end the thread. It does not wait for an unreachable collector."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="holdfast-traces", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_SPANS):
            await done.wait()
