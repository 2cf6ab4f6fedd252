"""Tool calls of a Chat Completions reply, put together from the fragments of a stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from glassloop.core.encoding import dumps, loads
from glassloop.core.ids import new_id
from glassloop.core.messages import ToolCall
from glassloop.models.decoding import mended
from glassloop.models.shapes import record

AMBIGUOUS = (
    "Not run: pieces of this call's arguments arrived without saying to which call they belong. "
    "Make one call at a time."
)
_OWN = frozenset({"id", "index", "type", "function"})


class _Draft:
    """A call whose fragments are still coming; `doubtful` where it began under the id of another."""

    __slots__ = ("doubtful", "extra", "id", "last", "name", "pieces", "problem", "shown", "size")

    def __init__(self, id_: str, doubtful: bool) -> None:
        self.id = id_
        self.doubtful = doubtful
        self.name = ""
        self.pieces: list[str] = []
        self.size = 0
        self.last = ""
        self.shown = 0
        self.extra: dict[str, Any] = {}
        self.problem: str | None = None

    @property
    def arguments(self) -> str:
        return mended("".join(self.pieces))

    def append(self, text: str) -> None:
        """Add a piece of the arguments, or what is new in it where it is all of them again.

        There are servers whose pieces hold everything so far, and servers that repeat the whole at the end. It cannot
        be mistaken: no JSON object goes on with its own beginning.
        """
        if text.startswith("{") and 2 * len(text) >= self.size:  # halves of characters, joined, are shorter
            text = text.removeprefix(self.arguments)
        if text:
            self.pieces.append(text)
            self.size += len(text)
            self.last = text.rstrip()[-1:] or self.last

    @property
    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object already."""
        if self.last != "}":  # asked for many pieces, parsed for few
            return False
        try:
            return isinstance(loads(self.arguments), dict)
        except ValueError:
            return False


class CallAssembler:
    """Collects the `tool_calls` entries of one reply.

    Servers disagree on what identifies a fragment: the index may be missing, always 0, or grow with every fragment;
    the id may come once, every time, never, or be that of several calls; the name may be split or repeated. What cannot
    be attributed is never guessed: the calls concerned carry a `problem` and are not run.

    Args:
        known: names of the tools on offer, as on the wire; they decide whether a name is split or repeated.
    """

    def __init__(self, known: Collection[str] = ()) -> None:
        self._known = known
        self._calls: list[_Draft] = []
        self._by_index: dict[int, _Draft] = {}
        self._by_id: dict[str, _Draft] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, entry: Any, *, whole: bool = False) -> None:
        """Take one entry; `whole` where it is a call by itself (an answer that was not streamed)."""
        fields = record(entry)
        if not fields:
            return
        function = record(fields.get("function")) or fields
        id_, name = str(fields.get("id") or ""), str(function.get("name") or "")
        arguments = function.get("arguments")
        text = "" if arguments is None else arguments if isinstance(arguments, str) else dumps(arguments).decode()
        index = _index(fields.get("index"))
        call = self._open(id_) if whole else self._find(index, id_, name, text)
        if call is None:
            return
        if index is not None:
            self._by_index[index] = call
        if id_ and not call.id:
            call.id = id_
            self._by_id[id_] = call
        if name:
            call.name = self._joined(call.name, name)
        call.append(text)
        for key, value in fields.items():
            if key not in _OWN and value is not None and function is not fields:
                call.extra[key] = value

    def _is_repeated(self, call: _Draft) -> bool:
        """Whether a call that began under an id which was taken turns out to be that call again."""
        if not call.doubtful:
            return False
        same = [one for one in self._calls if one is not call and (one.id, one.name) == (call.id, call.name)]
        return any(not call.arguments.strip() or call.arguments == one.arguments for one in same)

    def news_of(self, name: str) -> str:
        """What has come of the arguments of the first call of this name since the last time."""
        call = next((call for call in self._calls if call.name == name), None)
        if call is None:
            return ""
        news = "".join(call.pieces[call.shown :])
        call.shown = len(call.pieces)
        return news

    def calls(self, names: Mapping[str, str]) -> list[ToolCall]:
        """The calls, in request order; `names` maps wire names back to ours."""
        lost = any(call.pieces and not call.name.strip() for call in self._calls)
        return [
            ToolCall(
                id=new_id("call"),
                name=names.get(call.name, call.name),
                arguments=call.arguments,
                provider_id=call.id,
                extra=call.extra,
                problem=call.problem or (AMBIGUOUS if lost and not call.pieces else None),
            )
            for call in self._calls
            if not self._is_repeated(call)
        ]

    def _open(self, id_: str, *, doubtful: bool = False) -> _Draft:
        call = _Draft(id_, doubtful)
        self._calls.append(call)
        if id_:
            self._by_id.setdefault(id_, call)
        return call

    def _find(self, index: int | None, id_: str, name: str, text: str) -> _Draft | None:
        """The call that a fragment belongs to, a new one if it begins one, None if it belongs nowhere."""
        if id_ in self._by_id:
            return self._of_known_id(index, id_, name, text)
        candidate = self._by_index.get(index) if index is not None else (self._calls[-1] if self._calls else None)
        if candidate is not None:
            return candidate if self._continues(candidate, index, id_, name, text) else self._open(id_)
        if id_ or name:
            return self._open(id_)
        return self._owner_of_orphan(text)

    def _of_known_id(self, index: int | None, id_: str, name: str, text: str) -> _Draft:
        """The call of this id, unless a complete one is followed by a beginning under an index or a name of its own."""
        call = self._by_id[id_]
        own = self._by_index.get(index) if index is not None else None
        call = own if own is not None and own.id == id_ else call
        begins = name.strip() and (not text or text.lstrip().startswith("{"))
        another = name != call.name or (own is None and index is not None)
        return self._open(id_, doubtful=True) if begins and another and call.complete else call

    def _continues(self, call: _Draft, index: int | None, id_: str, name: str, text: str) -> bool:
        """Whether a fragment that may continue `call` does, or begins another call."""
        begins = not text or text.lstrip().startswith("{")
        if name == call.name and not call.pieces and (text or index is not None):
            return True  # nothing but the head of it has come
        if id_ and call.id:  # another id, as servers have it that label every call with index 0
            return not name or (bool(call.pieces) and not call.complete)
        if not name.strip():
            return True
        if name != call.name and (index is None or call.complete) and not self._is_split(call, name):
            return False
        return not (text and begins and call.complete and (index is None or text != call.arguments))

    def _is_split(self, call: _Draft, name: str) -> bool:
        return not call.pieces and (call.name + name in self._known or call.name not in self._known)

    def _owner_of_orphan(self, text: str) -> _Draft | None:
        """Where arguments go that come under an index of their own, with neither id nor name."""
        if not text.strip() or not self._calls:
            return None
        unfinished = [call for call in self._calls if not call.complete]
        if len(unfinished) == 1:
            return unfinished[0]
        for call in unfinished or self._calls:
            call.problem = AMBIGUOUS
        return None

    def _joined(self, name: str, piece: str) -> str:
        """Append a piece of a name, unless it is the name again (or, in servers that accumulate, the name so far)."""
        both = name + piece
        if not name or both in self._known:
            return both
        if piece == name or (piece.startswith(name) and piece in self._known):
            return piece
        return both


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) else None
