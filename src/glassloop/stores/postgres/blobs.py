"""Contents by digest in PostgreSQL, each once, and which run holds which."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, exists, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from glassloop.stores.postgres.errors import Repeat
from glassloop.stores.postgres.schema import blobs as contents
from glassloop.stores.postgres.schema import run_blobs

_ERASING = 0x676C6173736572  # of two runs that are erased at once, the second sees what the first let go


def keep_blobs(run_id: str, blobs: Mapping[str, bytes], connection: Connection) -> None:
    """Store contents, each once, and note that the run holds them."""
    digests = sorted(blobs)  # two writers that take the same ones in one order do not deadlock
    put = insert(contents).on_conflict_do_nothing()
    connection.execute(put, [{"digest": digest, "data": blobs[digest]} for digest in digests])
    hold = insert(run_blobs).on_conflict_do_nothing()
    try:
        connection.execute(hold, [{"run_id": run_id, "digest": digest} for digest in digests])
    except IntegrityError as error:
        raise Repeat("A content was erased while it was being stored again.") from error


def erase_blobs(run_id: str, connection: Connection) -> int:
    """See `Journal.erase_blobs`."""
    connection.execute(select(func.pg_advisory_xact_lock(_ERASING)))
    let_go = delete(run_blobs).where(run_blobs.c.run_id == run_id).returning(run_blobs.c.digest)
    digests = connection.execute(let_go).scalars().all()
    held = exists().where(run_blobs.c.digest == contents.c.digest)
    try:
        return connection.execute(delete(contents).where(contents.c.digest.in_(digests), ~held)).rowcount
    except IntegrityError as error:
        raise Repeat("Another run has just taken up a content that was to be erased.") from error


def read_blob(digest: str, connection: Connection) -> bytes:
    """See `Journal.blob`."""
    found = connection.execute(select(contents.c.data).where(contents.c.digest == digest)).scalar()
    if found is None:
        raise KeyError(digest)
    return found
