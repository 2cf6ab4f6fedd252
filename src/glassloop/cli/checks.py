"""What `glassloop doctor` looks at: one sentence for each thing, without secrets."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, cast

import aiohttp

from glassloop.cli.background import Background
from glassloop.cli.recorded import file_of
from glassloop.core.encoding import loads
from glassloop.core.errors import ConfigurationError, GlassloopError
from glassloop.journal.projection import RunFilter, RunRow
from glassloop.models.endpoints import bearer
from glassloop.models.registry import PROVIDERS, Provider, Wire, resolve_model
from glassloop.models.transport import host_of

if TYPE_CHECKING:
    from glassloop.stores import Store

Mark = Literal["ok", "missing", "problem"]

LOCAL_SERVERS = {
    "ollama": "http://127.0.0.1:11434/v1",
    "vllm": "http://127.0.0.1:8000/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
}
"""Where local model servers listen by default."""

_LOCAL_S = 0.3
_REMOTE_S = 5.0
_STORE_S = 3.0
_SHORTEST_KEY = 20  # of a shorter one the last four characters would tell too much


@dataclass(frozen=True)
class Check:
    """One finding.

    Args:
        name: of what.
        mark: ok; missing (not configured, not found); problem (configured and does not work).
        message: one sentence.
    """

    name: str
    mark: Mark
    message: str


def diagnose(store: str, environ: Mapping[str, str], local: Mapping[str, str] = LOCAL_SERVERS) -> list[Check]:
    """Everything that can be found out without asking a model, in the order in which it matters.

    Args:
        store: URL of the store.
        environ: the environment.
        local: base URLs of the local servers to look for, by the prefix of their models.
    """
    model = _model(environ)
    unopened, elsewhere = _store_to_be(store), environ.get("SESSIONS", "").strip()
    with Background() as background:
        endpoint, servers = background.call(_reach(environ, model, local))
        where = unopened or _open_store(store, background)
        sessions = _sessions_to_be(store, elsewhere) or _open_sessions(elsewhere, background)
    return [_python(), _sqlite(), where, sessions, model, *endpoint, *_keys(environ), servers]


async def _reach(environ: Mapping[str, str], model: Check, local: Mapping[str, str]) -> tuple[list[Check], Check]:
    return await asyncio.gather(_endpoint(environ, model), _local_servers(local))


def _python() -> Check:
    text = f"Glassloop {version('glassloop')} on Python {platform.python_version()} ({platform.system()})."
    return Check("python", "ok", text)


def _sqlite() -> Check:
    return Check("sqlite", "ok", f"SQLite {sqlite3.sqlite_version}.")


def _store_to_be(url: str) -> Check | None:
    """What can be said about a store whose file does not exist, or cannot be written; None for another."""
    file = file_of(url)
    if file is None or not file.parent.is_dir():
        return None
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        return Check("store", "problem", f"The store {url} cannot be written: no permission.")
    if file.exists():
        return None
    return Check("store", "ok", f"The store {url} does not exist yet; the first run makes it.")


def _open_store(url: str, background: Background) -> Check:
    from glassloop.stores import open_store

    place = "store"
    try:
        store = open_store(url)
        place = f"store {store.url}"
        rows = background.call(_newest(store))
    except TimeoutError:
        return Check("store", "problem", f"The {place} did not answer within {_STORE_S:g} s; is it locked?")
    except GlassloopError as error:
        return Check("store", "problem", str(error))
    return Check("store", "ok", f"The {place} works, {'and holds runs' if rows else 'without any run yet'}.")


async def _newest(store: Store) -> list[RunRow]:
    async with asyncio.timeout(_STORE_S), store:
        return await store.journal.runs(RunFilter(limit=1))


def _sessions_to_be(store: str, url: str) -> Check | None:
    """What can be said about sessions that are in the store, or in a file that does not exist; None for others."""
    if url in ("", store):
        return Check("sessions", "ok", "Sessions are kept in the store; SESSIONS=redis://... would put them elsewhere.")
    unopened = _store_to_be(url)
    return None if unopened is None else replace(unopened, name="sessions")


def _open_sessions(url: str, background: Background) -> Check:
    """Whether the sessions can be reached."""
    from glassloop.stores import open_store

    place = "SESSIONS"
    try:
        opened = open_store("memory:", url)
        place = f"{opened.sessions_url} (SESSIONS)"
        background.call(_newest(opened))
    except TimeoutError:
        return Check("sessions", "problem", f"Sessions: {place} did not answer within {_STORE_S:g} s.")
    except GlassloopError as error:
        return Check("sessions", "problem", f"Sessions: {error}")
    return Check("sessions", "ok", f"Sessions are kept in {place}, which works.")


def _model(environ: Mapping[str, str]) -> Check:
    """Which model an agent without one of its own would ask."""
    named = environ.get("MODEL", "").strip()
    try:
        model = resolve_model(env=environ)
    except ConfigurationError as error:
        configured = named or environ.get("MODEL_ENDPOINT", "").strip()
        return Check("model", "problem" if configured else "missing", str(error))
    if named:
        return Check("model", "ok", f"MODEL={named} is what agents without a model of their own ask.")
    return Check("model", "ok", f"No MODEL is set; by the key that is there, {model.name} is asked.")


async def _endpoint(environ: Mapping[str, str], model: Check) -> list[Check]:
    """Whether the server of the configured model answers, and takes the key."""
    if model.mark != "ok":
        return []
    name = resolve_model(env=environ).name
    prefix = name.partition(":")[0]
    provider = PROVIDERS.get(prefix, Provider("openai-chat", ""))
    moved = next((each for each in ("MODEL_ENDPOINT", provider.base_variable) if environ.get(each, "").strip()), "")
    url = environ[moved].strip() if moved else provider.base_url
    variable = "MODEL_API_KEY" if environ.get("MODEL_API_KEY", "").strip() or not provider.key else provider.key
    key = environ.get(variable, "").strip()
    shown = f"The server at {host_of(url) or url}{f' ({moved})' if moved else ''}"
    try:
        status, names = await _models_at(url, key, _REMOTE_S, wire=provider.wire, proxies=True)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        text = f"{shown} does not answer ({_reason(error)}): start it, or correct the URL."
        return [Check("endpoint", "problem", text)]
    if status in (401, 403):
        what = f"refuses the key in {variable}" if key else "wants a key"
        return [Check("endpoint", "problem", f"{shown} {what} (HTTP {status}): set {variable} to a valid one.")]
    if status >= 500:
        return [Check("endpoint", "problem", f"{shown} is in trouble (HTTP {status}).")]
    offers = f" and offers {_few(names)}" if names else f" (HTTP {status})"
    return [Check("endpoint", "ok", f"{shown} answers{offers}.")]


def _keys(environ: Mapping[str, str]) -> list[Check]:
    known = ["MODEL_API_KEY", *sorted({provider.key for provider in PROVIDERS.values() if provider.key})]
    found = [name for name in known if environ.get(name, "").strip()]
    if not found:
        return [Check("keys", "missing", f"No key is set ({', '.join(known)}).")]
    return [Check("keys", "ok", f"{name} is set{_masked(environ[name].strip())}.") for name in found]


async def _local_servers(places: Mapping[str, str]) -> Check:
    found = await asyncio.gather(*(_local_server(prefix, url) for prefix, url in places.items()))
    sentences = [sentence for sentence in found if sentence]
    if sentences:
        return Check("local", "ok", " ".join(sentences))
    looked = ", ".join(f"{prefix} at {host_of(url)}" for prefix, url in places.items())
    return Check("local", "missing", f"No local model server was found ({looked}).")


async def _local_server(prefix: str, url: str) -> str | None:
    try:
        _, names = await _models_at(url, "", _LOCAL_S)
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    return f"{prefix} answers at {host_of(url)} with {_few(names)}: use MODEL={prefix}:{names[0]}." if names else None


async def _models_at(
    url: str, key: str, seconds: float, *, wire: Wire = "openai-chat", proxies: bool = False
) -> tuple[int, list[str]]:
    """HTTP status and names of the models that a server lists, as OpenAI and Anthropic define it (`GET /v1/models`).

    Raises:
        aiohttp.ClientError, OSError, ValueError: no answer, or no URL.
    """
    base = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/chat/completions")
    base = base if "/" in base.partition("://")[2] else f"{base}/v1"
    headers = {"anthropic-version": "2023-06-01", "x-api-key": key} if wire == "anthropic-messages" else bearer(key)
    limit = aiohttp.ClientTimeout(total=seconds)
    async with (
        aiohttp.ClientSession(timeout=limit, trust_env=proxies) as session,
        session.get(f"{base}/models", headers=headers, allow_redirects=False) as response,
    ):
        return response.status, _names(await response.read())


def _names(body: bytes) -> list[str]:
    try:
        value: Any = loads(body)
    except ValueError:
        return []
    listed: Any = cast("dict[str, Any]", value).get("data") if isinstance(value, dict) else None
    items = cast("list[Any]", listed) if isinstance(listed, list) else []
    return [str(cast("dict[str, Any]", item)["id"]) for item in items if isinstance(item, dict) and "id" in item]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _masked(key: str) -> str:
    return f" (ends in ...{key[-4:]})" if len(key) >= _SHORTEST_KEY else ""


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.InvalidURL):
        return "this is no URL"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "there is no such host"
    number: Any = getattr(getattr(error, "os_error", None) or error, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) and number > 0 else type(error).__name__
