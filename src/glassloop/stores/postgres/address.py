"""Where a PostgreSQL database is: its URL, taken apart, and shown without the password."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote

from glassloop.core.errors import ConfigurationError

_SHAPE = "write postgresql://user:password@host:5432/database"


@dataclass(frozen=True)
class Address:
    """A database, and how to log in.

    Args:
        host: with the port, or the directory of a socket.
        database: its name; empty for the server's default, the user's name.
        user: who logs in; empty for the default.
        dsn: the URL without user and password.
        password: None where there is none.
    """

    host: str
    database: str
    user: str
    dsn: str = field(repr=False)
    password: str | None = field(repr=False)

    def __str__(self) -> str:
        return f"PostgreSQL at {self.host}"

    @property
    def url(self) -> str:
        """The URL as it may be shown: neither a password nor options."""
        return f"postgresql://{f'{self.user}@' if self.user else ''}{self.host}/{self.database}"

    @staticmethod
    def parse(url: str) -> Address:
        """Take a URL apart.

        Raises:
            ConfigurationError: it is none; the message shows nothing of it, for that could be the password.
        """
        login, at, place = url.partition("://")[2].rpartition("@")
        if any(character in login for character in "/?#@"):
            raise ConfigurationError(
                "The password in the store's URL has a character that stands for something else there: "
                "write / as %2F, ? as %3F, # as %23 and @ as %40."
            )
        hosts, _, rest = place.partition("/")
        path, _, query = rest.partition("?")
        hosts, _, early = hosts.partition("?")
        options = {name: values[-1] for name, values in parse_qs(query or early).items()}
        _check_ports(hosts)
        user, colon, password = login.partition(":")
        return Address(
            host=unquote(hosts) or options.get("host", "") or os.environ.get("PGHOST", "") or "localhost",
            database=unquote(path) or options.get("dbname", ""),
            user=unquote(user) or options.get("user", ""),
            dsn=f"postgresql://{place}",
            password=unquote(password) if at and colon else None,
        )


def _check_ports(hosts: str) -> None:
    for host in hosts.split(","):
        port = host.rpartition("]")[2].partition(":")[2]  # [::1]:5432
        if port and not port.isdecimal():
            raise ConfigurationError(f"The port in the store's URL is no number: {_SHAPE}.")
