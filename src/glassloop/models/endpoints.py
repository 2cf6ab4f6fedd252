"""URLs, keys and headers, checked when a model is made and not when it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from glassloop.core.errors import ConfigurationError
from glassloop.models.exchange import Endpoint
from glassloop.models.failures import Peer
from glassloop.models.transport import DEFAULT_TRANSPORT, Transport, host_of

_LOCAL_ENDINGS = (".local", ".localhost", ".internal", ".lan", ".home.arpa")


def endpoint(
    url: str, headers: Mapping[str, str], key_variable: str, api_key: str | None, transport: Transport | None
) -> Endpoint:
    """Put an endpoint together.

    Raises:
        ConfigurationError: a header, or the key in it, cannot be sent.
    """
    if api_key is not None and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
        where = key_variable or "the API key"
        raise ConfigurationError(f"{where} holds characters that no key has (blanks, line ends, quotes); set it again.")
    everything = {"Content-Type": "application/json", **headers}
    for name, value in everything.items():
        if not (f"{name}{value}".isprintable() and name.isascii()):
            raise ConfigurationError(
                f"The header {name!r} cannot be sent: it holds line ends or other control characters."
            )
    return Endpoint(Peer(url, key_variable, api_key or ""), everything, transport or DEFAULT_TRANSPORT)


def bearer(api_key: str | None) -> dict[str, str]:
    """The header that carries a key, if there is one."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def join_url(base_url: str, path: str) -> str:
    """The URL of `path` under a base URL, forgiving about how the base was written.

    A slash at the end and the path itself (`.../chat/completions`) may be there already; a missing scheme is `http` on
    this machine and the local network and `https` elsewhere.

    Raises:
        ConfigurationError: there is no host in it.
    """
    base = base_url.strip()
    if "://" not in base:
        base = f"{'http' if is_local(base.partition('/')[0]) else 'https'}://{base}"
    base = base.rstrip("/").removesuffix(f"/{path}").rstrip("/")
    if not (base.startswith(("http://", "https://")) and _hostname(host_of(base))):
        raise ConfigurationError(f"The base URL {host_of(base)!r} is not an http(s) URL with a host.")
    return f"{base}/{path}"


def is_local(host: str) -> bool:
    """Whether a host (with or without port) is this machine or one of the local network."""
    bare = _hostname(host)
    try:
        address = ip_address(bare)
    except ValueError:
        return "." not in bare or bare.endswith(_LOCAL_ENDINGS)
    return address.is_private or address.is_loopback or address.is_link_local


def _hostname(host: str) -> str:
    """The name or address without its port; empty where that is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
