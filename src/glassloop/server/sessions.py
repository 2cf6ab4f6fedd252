"""`/v1/sessions`: what was said in a conversation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, assert_never

from fastapi import APIRouter, Path, Query

from glassloop.core.messages import Media, Message, Reply, SystemMessage, ToolResult, UserMessage
from glassloop.journal.projection import RunFilter
from glassloop.server.desk import Caller, TheDesk
from glassloop.server.problems import Refused
from glassloop.server.schemas import MessageOut, SessionName, SessionOut
from glassloop.server.scope import session_key

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])


@router.get("/{session}", response_model_exclude_none=True)
async def get_session(
    session: Annotated[SessionName, Path()],
    desk: TheDesk,
    caller: Caller,
    limit: Annotated[int | None, Query(ge=1, le=10_000, description="Only the last so many.")] = None,
) -> SessionOut:
    """The messages of a session of yours, oldest first; those of a run are there once it has finished."""
    key = session_key(caller, session)
    messages = await desk.runtime.store.sessions.load(key, limit)
    if not messages and not await desk.runtime.runs(RunFilter(session=key, limit=1)):
        raise Refused(404, "session_not_found", "You have no such session.")
    return SessionOut(session=session, messages=[message_out(message) for message in messages])


def message_out(message: Message) -> MessageOut:
    """A message for the session's owner."""
    match message:
        case SystemMessage(text=text):
            return MessageOut(role="system", text=text)
        case UserMessage():
            parts = () if isinstance(message.content, str) else message.content
            media = [asdict(part) for part in parts if isinstance(part, Media)]
            return MessageOut(role="user", text=message.text, origin=message.origin, media=media or None)
        case Reply():
            calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls]
            return MessageOut(
                role="assistant", text=message.text, thinking=message.thinking or None, tool_calls=calls or None
            )
        case ToolResult():
            return MessageOut(
                role="tool",
                text=message.content,
                call_id=message.call_id,
                tool=message.name,
                status=message.status,
                media=[asdict(part) for part in message.media] or None,
            )
        case _:
            assert_never(message)
