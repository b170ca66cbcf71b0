"""Which endpoint a request is for (spec autorecovery-admin §9.1).

A path takes GET, PUT, POST and DELETE, and its endpoint says which of them it means; other methods are 405. What nobody
is there for is 404, with a page as Java has it. An endpoint that fails is 500, and the reason is in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .messages import BadBodyError, Handler, Reply, Request, text

log = logging.getLogger(__name__)

METHODS = ("DELETE", "POST", "GET", "PUT")

NOT_FOUND = Reply(
    404, b"<html><body><h1>Resource not found</h1></body></html>", content_type="text/html; charset=utf-8"
)
FAILED = text("Internal Server Error", 500)


class Routes:
    """Endpoints by path."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    async def answer(self, request: Request) -> Reply:
        """Of the endpoint, or why there is none. Raises nothing but cancellation."""
        handler = self._handlers.get(request.path)
        if handler is None:
            return NOT_FOUND
        if request.method not in METHODS:
            return Reply(405, allow=",".join(METHODS))
        try:
            return await handler(request)
        except BadBodyError as error:
            return text(f"Failed to handle the request, exception: {error}", 400)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return FAILED
