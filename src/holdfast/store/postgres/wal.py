"""The write-ahead log of PostgreSQL: how much was written, and how much is kept for standbys."""

from __future__ import annotations

import logging

from asyncpg import Connection

from ..records import WalPosition

logger = logging.getLogger(__name__)

_MAY_READ = """
SELECT has_function_privilege('pg_current_wal_lsn()', 'EXECUTE'), has_table_privilege('pg_replication_slots', 'SELECT')
"""
_WRITTEN = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
_SLOT_LAG = "SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint FROM pg_replication_slots"


class WalReader:
    """Reads the position of the write-ahead log, as far as the user of the database may."""

    def __init__(self) -> None:
        self._is_noted = False

    async def read(self, connection: Connection) -> WalPosition:
        """Return the position. A missing permission is logged once, and checked each time, as it may be granted."""
        may_read, may_see_slots = await connection.fetchrow(_MAY_READ)
        if not (may_read and may_see_slots):
            self._note(may_read=may_read)
        return WalPosition(
            written=await connection.fetchval(_WRITTEN) if may_read else None,
            slot_lag=await connection.fetchval(_SLOT_LAG) if may_read and may_see_slots else None,
        )

    def _note(self, *, may_read: bool) -> None:
        right = "SELECT ON pg_replication_slots" if may_read else "EXECUTE ON FUNCTION pg_current_wal_lsn()"
        if not self._is_noted:
            logger.info(
                "PostgreSQL's write-ahead log is not measured: this user lacks the right. GRANT %s TO it.", right
            )
        self._is_noted = True
