"""Whose a port of this machine is."""

import socket
import sys

import pytest

from holdfast.server.live.port_owner import owners, strangers_at

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 4711 1 0 100 0 0 10 0
   1: 0100007F:0A0A 0100007F:2CAA 01 00000000:00000000 00:00000000 00000000  1002        0 4712 1 0 20 4 30 10 -1
   2: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:0 0  0  0 1
 bad line
"""


def test_who_listens_is_read_from_the_kernels_table():
    """Connections are no listeners, and a line of another shape is passed over."""
    assert [(11434, 1001), (8080, 0)] == list(owners(TABLE.splitlines()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a port is")
def test_our_own_servers_and_those_of_other_machines_are_no_strangers():
    """And where nobody listens there is nobody to mistrust."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        assert {} == strangers_at([f"http://127.0.0.1:{port}/v1", "http://192.0.2.1:11434/v1", "http://127.0.0.1:9/v1"])
