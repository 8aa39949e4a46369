from __future__ import annotations

import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.connection import MySqlSettings, Server
from lakecore.cdc.mysql.snapshot import check_exact
from lakecore.errors import Unsupported

CONF = {"hostname": "h", "username": "u", "password": "p", "database-name": "d"}
TABLE = SourceTable("d", "t")


def server(*, mariadb: bool) -> Server:
    return Server(
        version="8", identity="1", is_mariadb=mariadb, zone="UTC", snapshot_states_position=mariadb
    )


def test_a_table_without_a_key_whose_changes_would_come_twice_is_refused() -> None:
    followed = MySqlSettings.parse(CONF)
    with pytest.raises(Unsupported, match=r"without a primary key.*table=d\.t"):
        check_exact(followed, server(mariadb=False), TABLE, [])

    check_exact(followed, server(mariadb=False), TABLE, ["id"])
    check_exact(followed, server(mariadb=True), TABLE, [])
    copied = MySqlSettings.parse({**CONF, "scan.startup.mode": "snapshot"})
    check_exact(copied, server(mariadb=False), TABLE, [])
