"""The resident side of a peer: reads one measuring order per line, writes one result per line.

echo '{"op": "single", "k": 10}' | .venvs/raw_openai/bin/python -m bench.peers.raw_openai
"""

import asyncio
import json
import os
import shutil
import sys
import time
import traceback
from typing import Any, TextIO

from bench.common import Peer
from bench.measure import OPERATIONS


async def _obey(peer: Peer, order: dict[str, Any]) -> dict[str, Any]:
    """Runs one order; a failure is a result too, so that one broken case does not end the session."""
    start = time.perf_counter()
    operation = OPERATIONS[order.pop("op")]
    try:
        result = await operation(peer, **order)
    except Exception as error:  # noqa: BLE001 - reported to the session
        result = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    return {**result, "took": time.perf_counter() - start}


async def _serve(peer: Peer, out: TextIO) -> None:
    """Answers orders until the input ends.  Reading blocks the loop, so an idle worker costs nothing."""
    await peer.setup()
    print(json.dumps({"ready": peer.name}), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(await _obey(peer, json.loads(line))), file=out, flush=True)
    await asyncio.wait_for(peer.close(), 5)
    if peer.data_dir:
        shutil.rmtree(peer.data_dir, ignore_errors=True)


def main(peer: type[Peer]) -> None:
    """Entry point of every peer script; the environment variable VARIANT chooses a variant."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the results
    status = 0
    try:
        asyncio.run(_serve(peer(os.environ.get("VARIANT", "")), out))
    except Exception:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
        status = 1
    os._exit(status)  # some libraries leave threads behind that would keep the process alive
