from __future__ import annotations

import subprocess
import sys

import pytest

from glassloop.models.transport import host_of


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://user:pw@api.example.com:8443/v1?key=1", "api.example.com:8443"),
        ("https://api.example.com?key=1", "api.example.com"),
        ("http://[::1]:8000/v1", "[::1]:8000"),
        ("api.example.com/v1", "api.example.com"),
        ("", ""),
    ],
)
def test_the_host_of_a_url_is_all_that_is_shown_of_it(url: str, host: str) -> None:
    assert host_of(url) == host


def test_http_is_loaded_with_the_first_request() -> None:
    code = (
        "import asyncio, sys\n"
        "from glassloop.core.errors import ModelError\n"
        "from glassloop.models.model import ModelRequest, complete\n"
        "from glassloop.models.openai_chat import OpenAIChat\n"
        "model = OpenAIChat('m', base_url='http://127.0.0.1:1')\n"
        "assert 'aiohttp' not in sys.modules\n"
        "async def ask():\n"
        "    try: await complete(model, ModelRequest(()))\n"
        "    except ModelError as error: print(error.kind)\n"
        "asyncio.run(ask())\n"
        "assert 'aiohttp' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("connection\n", "")
