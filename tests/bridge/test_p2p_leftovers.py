from __future__ import annotations

import socket

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.p2p_leftovers import dead_sockets  # noqa: E402


def test_a_socket_file_without_a_process_behind_it_is_dead_and_others_are_not_looked_at(tmp_path):
    alive, dead = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with alive:
        alive.bind(str(tmp_path / "p2pclient-1.sock"))
        alive.listen()
        dead.bind(str(tmp_path / "p2pclient-2.sock"))
        dead.close()
        (tmp_path / "p2pd-3.sock").touch()
        assert dead_sockets(f"/unix{tmp_path}/") == [tmp_path / "p2pclient-2.sock"]
    assert len(dead_sockets(f"/unix{tmp_path}/")) == 2
