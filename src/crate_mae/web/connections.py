"""HTTP connections that can't be held open for nothing, and a quiet answer to what is not HTTP."""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crate_mae.web.guard import POLICY
from crate_mae.web.limits import RETRY_AFTER, Limits

MALFORMED = "this is not a valid HTTP/1.1 request; the address starts with http://, and /api lists what there is."
FULL = "the server has as many connections as it takes; try again in a moment."


class Connection(H11Protocol):
    """uvicorn's connection with time-outs and a cap on how many there are.

    uvicorn itself waits for ever for the rest of a header, and for a client to take its answer.
    """

    limits = Limits()
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self._start_timer()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # there is a whole header; ``uploads`` watches the body
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._start_timer()  # closing waits until all is sent

    @property
    def waits_for_client(self) -> bool:
        """Whether there is no complete request of this client to work on."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, MALFORMED)

    def _unsupported_upgrade_warning(self) -> None:
        """``guard`` answers an upgrade to WebSocket; any other is ignored, as HTTP allows."""

    def _make_room(self) -> None:
        """Close the oldest connection that has sent no complete request; where there is none, this one."""
        idle = [one for one in self.connections if isinstance(one, Connection) and one.waits_for_client]
        oldest = min(idle, key=lambda one: one.since)
        if oldest is self:
            self._refuse(503, FULL, RETRY_AFTER)
        else:
            self.connections.discard(oldest)  # now, not when the loop next looks: there may be others to accept
            oldest.transport.abort()

    def _refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """A last answer, where HTTP still allows one."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = json.dumps({"error": message}).encode()
            whole = POLICY | {"Content-Type": "application/json", "Connection": "close"} | (headers or {})
            head = h11.Response(
                status_code=status, headers=[*whole.items(), ("Content-Length", str(len(body)))], reason=b""
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.limits.header, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connections_within(limits: Limits) -> type[Connection]:
    """The kind of connection that a server with these limits makes."""
    return type("Connection", (Connection,), {"limits": limits})
