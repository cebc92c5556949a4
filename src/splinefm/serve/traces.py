"""Spans of OpenTelemetry for requests; where they go is what the process has configured."""

from __future__ import annotations

from typing import Any

from opentelemetry import propagate, trace

from splinefm.serve.messages import Request


class Tracer:
    """Makes a span for each request, within the trace that its headers name."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("splinefm.serve")

    def begin(self, request: Request) -> Any:
        """The span of a request that has just arrived."""
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
        return self._tracer.start_span(
            f"{request.method} {request.path[:100]}", propagate.extract(carrier), trace.SpanKind.SERVER
        )

    def end(self, span: Any, request: Request, status: int) -> None:
        """End a span, with what is known of the answer."""
        span.set_attribute("http.request.method", request.method)
        span.set_attribute("url.path", request.path[:200])
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("splinefm.request_id", request.id)
        span.set_attribute("splinefm.rows", request.n_rows)
        if status >= 500:
            span.set_status(trace.StatusCode.ERROR)
        span.end()
