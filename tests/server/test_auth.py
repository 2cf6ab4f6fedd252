"""Who is let in, and as whom."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from glassloop import Agent, ConfigurationError, Identity
from glassloop.server import Auth, make_auth, session_key
from glassloop.server.keys import hash_key, new_key, read_keys
from glassloop.server.scope import session_name
from glassloop.testing import ScriptedModel

SECRET = "s" * 32
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = (
    RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
)
PRIVATE = RSA.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
ANN = Identity("ann", "acme", ("supervisor",))


def token(key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """A token for ann, which claims may change; None leaves one out."""
    given = {"sub": "ann", "tenant": "acme", "roles": ["supervisor"], "exp": int(time.time()) + 60, **claims}
    return jwt.encode({name: value for name, value in given.items() if value is not None}, key, algorithm)


# Keys


def test_a_key_stands_for_somebody_and_is_stored_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    key, other = new_key(file, "ann", "acme", ["supervisor"]), new_key(file, "bob")
    assert key != other
    assert len(key) >= 43
    assert key not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    auth = make_auth({}, keys=file)
    assert auth.identify(key) == ANN
    assert auth.identify(other) == Identity("bob", "default")
    assert auth.identify(key + "x") is auth.identify("") is auth.identify(None) is None
    assert key not in repr(auth)


def test_a_key_is_added_after_a_line_without_its_line_break(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text(json.dumps({"hash": hash_key("k"), "user": "old"}))
    key = new_key(file, "new")
    assert {who.user for who in read_keys(file).values()} == {"old", "new"}
    assert read_keys(file)[hash_key(key)].user == "new"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("gl_mysecretkey", "Line 2"),
        ('{"hash": "gl_mysecretkey", "user": "ann"}', "hash"),
        (json.dumps({"hash": hash_key("k")}), "user"),
        (json.dumps({"hash": hash_key("k"), "user": "ann", "roles": "admin"}), "roles"),
        (json.dumps({"hash": hash_key("k"), "user": "ann", "rolls": []}), "rolls"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text(f"\n{line}\n")
    with pytest.raises(ConfigurationError, match=problem) as raised:
        read_keys(file)
    assert "Line 2" in str(raised.value)
    assert "mysecretkey" not in str(raised.value)


def test_a_missing_key_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="glassloop keys new"):
        read_keys(tmp_path / "none")


# Tokens


@pytest.mark.parametrize("kind", ["HS256", "RS256"])
def test_a_token_stands_for_somebody(tmp_path: Path, kind: str) -> None:
    environ = {"GLASSLOOP_JWT_SECRET": SECRET} if kind == "HS256" else {"GLASSLOOP_JWT_PUBLIC_KEY": PUBLIC}
    key = SECRET if kind == "HS256" else PRIVATE
    auth = make_auth(environ)
    assert auth.identify(token(key, kind)) == ANN
    assert auth.identify(token(key, kind, tenant=None, roles=None)) == Identity("ann", "default")
    assert SECRET not in repr(auth)


def test_a_public_key_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "public.pem"
    file.write_text(PUBLIC)
    assert make_auth({"GLASSLOOP_JWT_PUBLIC_KEY": str(file)}).identify(token(PRIVATE, "RS256")) == ANN


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": int(time.time()) - 60},
        {"exp": "soon"},
        {"nbf": int(time.time()) + 86_400},  # read when the tests are collected, long before this one runs
        {"sub": None},
        {"sub": ""},
        {"tenant": ""},
        {"tenant": 7},
        {"roles": "supervisor"},
        {"roles": ["supervisor", 1]},
        {"roles": {"supervisor": True}},
    ],
)
def test_a_wrong_token_stands_for_nobody(claims: Mapping[str, Any]) -> None:
    assert make_auth({"GLASSLOOP_JWT_SECRET": SECRET}).identify(token(**claims)) is None


def test_the_algorithm_is_not_taken_from_the_token() -> None:
    auth = make_auth({"GLASSLOOP_JWT_PUBLIC_KEY": PUBLIC})
    unsigned = token("", "none")
    header, payload, _ = token().split(".")
    mac = hmac.new(PUBLIC.encode(), f"{header}.{payload}".encode(), hashlib.sha256).digest()
    confused = f"{header}.{payload}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    for bad in (unsigned, confused, token(), token("x" * 32), f"{header}.{payload}.", "a.b.c"):
        assert auth.identify(bad) is None


def test_audience_and_issuer_are_checked_where_they_are_set() -> None:
    environ = {"GLASSLOOP_JWT_SECRET": SECRET, "GLASSLOOP_JWT_AUDIENCE": "desk", "GLASSLOOP_JWT_ISSUER": "idp"}
    auth = make_auth(environ)
    assert auth.identify(token(aud="desk", iss="idp")) == ANN
    assert auth.identify(token(aud=["other", "desk"], iss="idp")) == ANN
    for wrong in ({"aud": "other", "iss": "idp"}, {"aud": "desk", "iss": "x"}, {"iss": "idp"}, {"aud": "desk"}):
        assert auth.identify(token(**wrong)) is None
    assert make_auth({"GLASSLOOP_JWT_SECRET": SECRET}).identify(token(aud="whatever")) == ANN


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({}, "Nobody could call"),
        ({"GLASSLOOP_JWT_SECRET": "short"}, "at least 32 bytes"),
        ({"GLASSLOOP_JWT_SECRET": SECRET, "GLASSLOOP_JWT_PUBLIC_KEY": PUBLIC}, "unset one"),
        ({"GLASSLOOP_JWT_PUBLIC_KEY": "/none/there.pem"}, "neither"),
        ({"GLASSLOOP_JWT_PUBLIC_KEY": SECRET}, "neither"),
        ({"GLASSLOOP_JWT_PUBLIC_KEY": PRIVATE}, "public one alone"),
    ],
)
def test_what_cannot_work_is_refused_before_the_start(environ: Mapping[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as raised:
        make_auth(environ)
    assert SECRET not in str(raised.value)


# Over HTTP


@pytest.fixture
async def closed(serve: Callable[..., Any]) -> Any:
    """A server that knows one key and tokens."""
    auth = Auth({hash_key("gl_ann"): ANN}, make_auth({"GLASSLOOP_JWT_SECRET": SECRET}).tokens)
    return await serve(Agent(ScriptedModel(lambda _: "yes")), auth=auth)


@pytest.mark.parametrize(
    "path", ["/v1/runs", "/v1/approvals", "/v1/sessions/s", "/v1/runs/r/events", "/nowhere", "/docs"]
)
async def test_nothing_is_told_without_a_key(closed: Any, path: str) -> None:
    answer = await closed.nobody.get(path)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="glassloop"'
    assert answer.problem["code"] == "unauthorized"


@pytest.mark.parametrize("header", ["Bearer wrong", "bearer demo-alice", f"Bearer {'x' * 5000}"])
async def test_a_wrong_key_is_said_to_be_wrong_and_not_repeated(closed: Any, header: str) -> None:
    answer = await closed.nobody.get("/v1/runs", headers={"Authorization": header})
    assert answer.status == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert header.split()[1] not in answer.text


@pytest.mark.parametrize("header", ["Basic Z2xfYW5uOg==", "gl_ann", "Bearer", "Bearer  "])
async def test_other_schemes_are_no_key(closed: Any, header: str) -> None:
    answer = await closed.nobody.get("/v1/runs", headers={"Authorization": header})
    assert (answer.status, answer.problem["detail"][:15]) == (401, "A key is needed")


async def test_no_body_is_read_of_somebody_unknown(closed: Any) -> None:
    answer = await closed.nobody.post("/v1/runs", data=b"not json")
    assert answer.status == 401


async def test_a_key_and_a_token_of_one_user_see_the_same(closed: Any) -> None:
    by_key, by_token = closed.client("gl_ann"), closed.client(token())
    run_id = await by_key.run()
    assert (await by_token.rested(run_id))["output"] == "yes"
    stranger = closed.client(token(tenant="other"))
    assert (await stranger.get(f"/v1/runs/{run_id}")).status == 404


async def test_health_and_the_description_are_open(closed: Any) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert (await closed.nobody.get(path)).status == 200


async def test_a_server_for_demonstrations_answers_to_its_own_name_alone(site: Any) -> None:
    assert (await site.alice.get("/v1/runs", headers={"Host": "localhost:80"})).status == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"):
        answer = await site.alice.get("/v1/runs", headers={"Host": host})
        assert (answer.status, answer.problem["code"]) == (421, "not_local")


async def test_a_server_without_keys_takes_everybody_for_one_user(serve: Callable[..., Any]) -> None:
    site = await serve(Agent(ScriptedModel(lambda _: "yes")), auth=make_auth({}, open_to_all=True))
    run_id = await site.nobody.run()
    assert (await site.client("whatever").rested(run_id))["status"] == "completed"
    assert (await site.nobody.get("/v1/runs", headers={"Host": "evil.example"})).status == 421


# Names of sessions in the store


def test_no_two_users_have_one_name_for_a_session() -> None:
    parts = ["a", "b/c", "b%2Fc", "%", "", "a/b"]
    keys = {session_key(Identity(user, tenant), name) for user in parts for tenant in parts for name in parts}
    assert len(keys) == len(parts) ** 3
    assert all(session_name(session_key(Identity("u", "t"), name)) == name for name in parts)
    assert session_name("plain") == "plain"
