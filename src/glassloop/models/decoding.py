"""What servers send as JSON, read even where it is not quite."""

from __future__ import annotations

import json
from typing import Any

from glassloop.core.encoding import loads


def decoded(data: bytes) -> Any:
    """Decode JSON from a server.

    What strict JSON does not have and servers send all the same is accepted: half a surrogate pair (an emoji cut in two
    by a stream), NaN, a byte order mark, and bytes that are not UTF-8.

    Raises:
        ValueError: `data` is not JSON.
    """
    try:
        return loads(data)
    except ValueError:
        return json.loads(data.decode("utf-8-sig", "replace"))


def mended(text: str) -> str:
    """`text` with halves of characters joined again; a half that is alone becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
