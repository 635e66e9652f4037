"""HTTP connections that can't be held open for nothing, and a quiet answer to what is not HTTP."""

import asyncio
import json
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crate_mae.web.guard import POLICY
from crate_mae.web.limits import RETRY_AFTER, Limits

MALFORMED = "this is not a valid HTTP/1.1 request; the address starts with http://, and /api lists what there is."
FULL = "the server has as many connections as it takes; try again in a moment."


class Connection(H11Protocol):
    """uvicorn's connection with time-outs and a cap on how many there are.

    uvicorn itself waits for ever for the rest of a header, for the rest of a body that nobody reads, and for a client
    to take its answer. Each connection looks from time to time what it waits for, so that no order of events can stop
    a timer.
    """

    limits = Limits()
    _timer: asyncio.TimerHandle | None = None
    _awaited: tuple[str, object] | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Close the connection if it has waited too long for its client."""
        now, awaited = self.loop.time(), self._awaits()
        if awaited != self._awaited:
            self._awaited, self._since = awaited, now
        elif awaited is not None and now - self._since >= self.limits.header:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self.limits.header / 8, self._look)

    def _awaits(self) -> tuple[str, object] | None:
        """What the client is to do, and after which request; ``uploads`` watches a body that is read."""
        if self.transport.get_write_buffer_size():
            return "take the answer", self.cycle
        if self.cycle is None or self.cycle.response_complete:
            return "send a request", self.cycle
        return None

    @property
    def _worked_on(self) -> bool:
        """Whether there is a complete request that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    @property
    def _idle(self) -> bool:
        """Whether neither a body nor an answer is on its way."""
        return self._awaits() == ("send a request", self.cycle)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, MALFORMED)

    def _unsupported_upgrade_warning(self) -> None:
        """``guard`` answers an upgrade to WebSocket; any other is ignored, as HTTP allows."""

    def _make_room(self) -> None:
        """Close the connection that has been idle for longest; where none is, the oldest upload; at last, this one."""
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        waiting = [one for one in others if not one._worked_on]
        if not waiting:
            self._refuse(503, FULL, RETRY_AFTER)
            return
        oldest = min(waiting, key=lambda one: (not one._idle, one._since))
        self.connections.discard(oldest)  # now, not when the loop next looks: there may be others to accept
        oldest.transport.abort()

    def _refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """A last answer, where HTTP still allows one."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = json.dumps({"error": message}).encode()
            whole = POLICY | {"Content-Type": "application/json", "Connection": "close"} | (headers or {})
            head = h11.Response(
                status_code=status,
                headers=[*whole.items(), ("Content-Length", str(len(body)))],
                reason=HTTPStatus(status).phrase.encode(),
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def connections_within(limits: Limits) -> type[Connection]:
    """The kind of connection that a server with these limits makes."""
    return type("Connection", (Connection,), {"limits": limits})
