"""JSON lines over a unix socket between the orchestrator and one process of a swarm; both ends are here."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Message = dict[str, Any]

# The kernel's limit for the path of a unix socket is 108 bytes on Linux and 104 on macOS, with its final zero.
MAX_SOCKET_PATH_BYTES = 103


class ChannelClosed(EOFError):
    """The other end is gone; nothing more will come."""


class Channel:
    """One connected end. Sending is safe from several threads; receiving belongs to one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._send_lock = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """
        :raises ChannelClosed: if the other end is gone
        """
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            with self._send_lock:
                self._socket.sendall(data)
        except OSError as error:
            raise ChannelClosed(f"cannot send: {error}") from None

    def recv(self, deadline_s: float | None = None) -> Message:
        """The next message.

        :param deadline_s: how long to wait, in seconds; None waits for ever
        :raises TimeoutError: if nothing complete came in time (what has come is kept for the next call)
        :raises ChannelClosed: if the other end closed or died
        """
        until = None if deadline_s is None else time.monotonic() + deadline_s
        while (end := self._buffer.find(b"\n")) < 0:
            remaining = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._socket], [], [], remaining)[0]:
                raise TimeoutError(f"no message within {deadline_s:.1f} s")
            self._fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return json.loads(line)

    def _fill(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise ChannelClosed(f"cannot receive: {error}") from None
        if not data:
            raise ChannelClosed("the other end closed")
        self._buffer += data

    def close(self) -> None:
        self._socket.close()


class Listener:
    """The orchestrator's end before its process has connected.

    :param path: where the socket is made; short, see ``MAX_SOCKET_PATH_BYTES``
    """

    def __init__(self, path: Path) -> None:
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise OSError(f"{path} is too long for a unix socket ({MAX_SOCKET_PATH_BYTES} bytes)")
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(1)

    def accept(self, deadline_s: float, alive: Callable[[], bool]) -> Channel:
        """Wait for the process to connect.

        :param alive: asked several times a second; a process that died will never connect
        :raises ChannelClosed: if the process died first
        :raises TimeoutError: if it lives but did not connect within ``deadline_s`` seconds
        """
        until = time.monotonic() + deadline_s
        while not select.select([self._socket], [], [], 0.1)[0]:
            if not alive():
                raise ChannelClosed("the process ended before it connected")
            if time.monotonic() > until:
                raise TimeoutError(f"the process did not connect within {deadline_s:.1f} s")
        return Channel(self._socket.accept()[0])

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


def connect(path: str) -> Channel:
    """The process's end: join the orchestrator at the path it was given."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return Channel(connection)
