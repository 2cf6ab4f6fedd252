"""Who is calling: API keys and JSON Web Tokens, as bearer tokens (RFC 6750)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from glassloop.core.context import Identity
from glassloop.core.errors import ConfigurationError
from glassloop.server.keys import hash_key, read_keys
from glassloop.server.scope import DEFAULT_TENANT

DEMO_KEYS: Mapping[str, Identity] = {
    "demo-alice": Identity("alice", "demo"),
    "demo-bob": Identity("bob", "demo"),
    "demo-sam": Identity("sam", "demo", ("supervisor",)),
}
"""Keys that everybody knows, for demonstrations on one's own machine."""

LOCAL = Identity("local", DEFAULT_TENANT)
"""Who calls a server without authentication."""

_LEEWAY_S = 10
_SHORTEST_SECRET = 32  # bytes; RFC 7518, 3.2: a key for HS256 has at least the size of its hash


@dataclass(frozen=True)
class TokenRules:
    """Which JSON Web Tokens are believed.

    A token says `sub` (the user), optionally `tenant` and `roles` (a list of strings), and when it ends (`exp`); `nbf`,
    `iss` and `aud` are checked too. The algorithm is fixed here and never taken from the token (RFC 8725, 3.1).

    Args:
        key: the shared secret, or the public key in PEM.
        algorithm: HS256 or RS256.
        audience: what `aud` must name, if anything.
        issuer: what `iss` must be, if anything.
    """

    key: str = field(repr=False)
    algorithm: str = "HS256"
    audience: str | None = None
    issuer: str | None = None

    def identify(self, token: str) -> Identity | None:
        """Who the token stands for; None if it is not to be believed."""
        import jwt

        try:
            claims = jwt.decode(
                token,
                self.key,
                algorithms=[self.algorithm],
                audience=self.audience,
                issuer=self.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "sub"], "verify_aud": self.audience is not None},
            )
        except jwt.PyJWTError:
            return None
        return _identity_of(claims)


@dataclass(frozen=True)
class Auth:
    """Who may call the server, and as whom.

    Args:
        keys: who each API key stands for, by its hash (`keys.hash_key`).
        tokens: which JSON Web Tokens are believed; None for none.
        everybody: whom a call without a key stands for; None refuses it with 401.
        local: only calls to a loopback name are answered. It must be set where anybody may call: a web page that
            the machine's user visits could otherwise do so through a host name of its own (DNS rebinding).
    """

    keys: Mapping[str, Identity] = field(default_factory=dict[str, Identity], repr=False)
    tokens: TokenRules | None = None
    everybody: Identity | None = None
    local: bool = False

    def identify(self, token: str | None) -> Identity | None:
        """Who a bearer token stands for; None if nobody.

        Args:
            token: what the caller sent; None if nothing.
        """
        if token is None or self.everybody is not None:
            return self.everybody
        hashed = hash_key(token)
        for known, identity in self.keys.items():
            if hmac.compare_digest(known, hashed):
                return identity
        return self.tokens.identify(token) if self.tokens and token.count(".") == 2 else None

    @property
    def configured(self) -> bool:
        """Whether anybody can call at all."""
        return bool(self.keys) or self.tokens is not None or self.everybody is not None


def make_auth(
    environ: Mapping[str, str], *, keys: Path | None = None, demo: bool = False, open_to_all: bool = False
) -> Auth:
    """What the command line and the environment say.

    Args:
        environ: GLASSLOOP_JWT_SECRET (HS256) or GLASSLOOP_JWT_PUBLIC_KEY (RS256, a PEM text or the path of a file), and
            GLASSLOOP_JWT_AUDIENCE, GLASSLOOP_JWT_ISSUER.
        keys: a key file.
        demo: accept the demonstration keys too.
        open_to_all: accept everybody.

    Raises:
        ConfigurationError: nobody could call, or something is wrong with a key.
    """
    if open_to_all:
        return Auth(everybody=LOCAL, local=True)
    known = dict(read_keys(keys)) if keys is not None else {}
    if demo:
        known |= {hash_key(key): identity for key, identity in DEMO_KEYS.items()}
    auth = Auth(known, token_rules(environ), local=demo)
    if not auth.configured:
        raise ConfigurationError(
            "Nobody could call this server: give it --keys FILE (`glassloop keys new --user NAME` makes a key), set "
            "GLASSLOOP_JWT_SECRET or GLASSLOOP_JWT_PUBLIC_KEY, or try it with --demo."
        )
    return auth


def token_rules(environ: Mapping[str, str]) -> TokenRules | None:
    """Which tokens the environment says to believe; None for none. See `make_auth`.

    Raises:
        ConfigurationError: two keys, one that is too short, or one that is no key.
    """
    secret, public = (environ.get(f"GLASSLOOP_JWT_{name}", "").strip() for name in ("SECRET", "PUBLIC_KEY"))
    if not secret and not public:
        return None
    if secret and public:
        raise ConfigurationError("GLASSLOOP_JWT_SECRET and GLASSLOOP_JWT_PUBLIC_KEY are both set: unset one of them.")
    if secret and len(secret.encode()) < _SHORTEST_SECRET:
        raise ConfigurationError(f"GLASSLOOP_JWT_SECRET is too short: HS256 needs at least {_SHORTEST_SECRET} bytes.")
    audience, issuer = (environ.get(f"GLASSLOOP_JWT_{name}", "").strip() or None for name in ("AUDIENCE", "ISSUER"))
    if secret:
        return TokenRules(secret, "HS256", audience, issuer)
    return TokenRules(_public_key(public), "RS256", audience, issuer)


def _public_key(given: str) -> str:
    import jwt
    from jwt.algorithms import RSAAlgorithm

    try:
        text = given if given.startswith("-----") else Path(given).read_text("utf-8")
        key: Any = RSAAlgorithm(RSAAlgorithm.SHA256).prepare_key(text)
    except (OSError, ValueError, TypeError, jwt.PyJWTError):
        raise ConfigurationError(
            "GLASSLOOP_JWT_PUBLIC_KEY is neither an RSA public key in PEM nor a file with one."
        ) from None
    if hasattr(key, "private_numbers"):
        raise ConfigurationError("GLASSLOOP_JWT_PUBLIC_KEY is a private key: give the server the public one alone.")
    return text


def _identity_of(claims: Mapping[str, Any]) -> Identity | None:
    user, tenant, roles = claims.get("sub"), claims.get("tenant", DEFAULT_TENANT), claims.get("roles", [])
    if not (isinstance(user, str) and user and isinstance(tenant, str) and tenant and isinstance(roles, list)):
        return None
    named = [role for role in cast("list[object]", roles) if isinstance(role, str)]
    return Identity(user, tenant, tuple(named)) if len(named) == len(cast("list[object]", roles)) else None
