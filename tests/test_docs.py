"""Every code block of README.md and docs/ runs.

`python` blocks of a file share one namespace and may use `await` at the top level; with `title="name.py"` the block is
also written to that file. `sh` blocks, and the `$` lines of `console` blocks, run with bash in the same empty folder,
where `python` is this interpreter and the examples can be imported; `make` lines are only looked up in the Makefile. A
`text output` block must be what the block before it printed (`...` stands for anything).

MODEL is a stand-in, for every provider and behind both wires; blocks that run an example have the example's own. It
says what the document's comments of the form `<!-- replies: [...] -->` tell, in order: a JSON string is an answer, an
object `{"tool": {arguments}}` a call, a list of them several at once. Beyond that it calls each tool, then answers.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from glassloop.core.messages import ToolCall
from glassloop.models.schema_values import example_of
from glassloop.testing import Conversation, ModelServer, Reaction, call

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`\n]*)\n(?P<code>.*?)^ *(?P=mark)[`~]* *$", re.M | re.S
)
NOT_RUN = {"", "text", "mermaid", "diff", "html", "yaml", "toml", "dotenv"}
SECONDS = 90


@dataclass(frozen=True)
class Block:
    """A block to run: what it is, its code, and where the code begins."""

    kind: str
    code: str
    place: str
    line: int
    title: str | None = None


class UnknownBlock(Exception):
    """A block that the runner can neither run nor knows to be mere text."""


def blocks_of(document: Path, make_targets: set[str]) -> Iterator[Block]:
    """The blocks of `document` that are to be run, in order.

    Raises:
        UnknownBlock: its language is not known, it names a make target that does not exist, or its JSON is broken.
    """
    text = document.read_text("utf-8")
    for found in FENCE.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        line = text.count("\n", 0, found.start("code")) + 1
        code = re.sub(rf"^ {{0,{len(found['indent'])}}}", "", found["code"], flags=re.M)
        title = re.search(r'title="([\w.-]+)"', rest)
        place = f"{document}:{line}"
        match language:
            case "python":
                yield Block("python", code, str(document), line, title[1] if title else None)
            case "sh" | "bash" | "console":
                commands = commands_of(code) if language == "console" else code
                yield Block("sh", without_make(commands, make_targets, place), str(document), line)
            case "text" if rest == "output":
                yield Block("output", code, str(document), line)
            case "json":
                parse_json(code, place)
            case _ if language not in NOT_RUN:
                raise UnknownBlock(f"{place}: a block in {language!r} is neither run nor known as mere text.")
            case _:
                pass


def commands_of(session: str) -> str:
    """The commands of a `console` block: lines after `$ `, continued by lines after `> `."""
    return "\n".join(line[2:] for line in session.splitlines() if line.startswith(("$ ", "> ")))


def without_make(commands: str, targets: set[str], place: str) -> str:
    """`commands` without their make lines, whose targets must exist."""
    kept: list[str] = []
    for line in commands.splitlines():
        if called := re.match(r"\s*make\b(?:\s+(?P<target>[\w-]+))?(?!=)", line):
            if called["target"] and called["target"] not in targets:
                raise UnknownBlock(f"{place}: the Makefile has no target {called['target']!r}.")
        else:
            kept.append(line)
    return "\n".join(kept)


def parse_json(code: str, place: str) -> None:
    try:
        json.loads(code)
    except ValueError as error:
        raise UnknownBlock(f"{place}: not JSON: {error}.") from None


class Replies:
    """The brain of the stand-in: what the document says, then a call of each tool, then an answer."""

    def __init__(self, document: Path) -> None:
        told = re.findall(r"<!-- replies: (.*?) -->", document.read_text("utf-8"), re.S)
        self.left: list[Any] = [reply for one in told for reply in json.loads(one)]

    def __call__(self, asked: Conversation) -> Reaction:
        if self.left:
            reply = self.left.pop(0)
            return reply if isinstance(reply, str) else [one for item in as_list(reply) for one in self.calls(item)]
        wanted = [] if asked.results else [call(tool.name, **example_of(tool.schema)) for tool in asked.tools]
        return wanted or "All is done."

    def calls(self, item: dict[str, dict[str, Any]]) -> list[ToolCall]:
        return [call(tool, **arguments) for tool, arguments in item.items()]


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def run_document(document: Path, folder: Path, environment: dict[str, str], targets: set[str]) -> tuple[int, str]:
    """Run the blocks of `document` in `folder`; return the exit code and all that was printed."""
    replies = Replies(document)
    with ModelServer(replies) as server:
        model = {"MODEL": "openai:stand-in", "MODEL_ENDPOINT": server.url, "MODEL_API_KEY": "stand-in"}
        code, printed = run_blocks(document, folder, {**environment, **model}, targets)
    if replies.left and code == 0:
        return 1, f"{printed}\n{document.name}: the model was not asked for {replies.left}"
    return code, printed


def run_blocks(document: Path, folder: Path, environment: dict[str, str], targets: set[str]) -> tuple[int, str]:
    """Run the blocks with the model of `environment`."""
    plan = folder.with_suffix(".json")
    plan.write_text(json.dumps([asdict(block) for block in blocks_of(document, targets)]), "utf-8")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/docs_driver.py"), str(plan)],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{document.name} did not end within {SECONDS} s")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The empty folder in which the blocks of a document run."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def make_targets(root: Path) -> set[str]:
    """The targets of the Makefile."""
    return set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text("utf-8"), re.M))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_document(document: Path, folder: Path, clean_environment: dict[str, str], make_targets: set[str]) -> None:
    code, printed = run_document(document, folder, clean_environment, make_targets)
    assert code == 0, printed


SAMPLE = """
# Sample

```python title="shared.py"
word = "hello"
print(word)
```

```text output
hel...
```

- in a list, after an await:

  ```python
  import asyncio

  await asyncio.sleep(0)
  print(word, __name__)
  ```

```console
$ python shared.py
hello
$ python -c 'import shared' \\
>   && make_nothing=1
```

~~~sh
make test
test "$(python shared.py)" = hello
~~~

```json
{"a": 1}
```
"""


def write(folder: Path, text: str) -> Path:
    document = folder.with_suffix(".md")
    document.write_text(text, "utf-8")
    return document


AGENT = """
<!-- replies: [[{"get_weather": {"city": "Oslo"}}, {"get_weather": {"city": "Bern"}}], "Bern."] -->

```python
from glassloop import Agent


def get_weather(city: str) -> int:
    \"\"\"Temperature of a city.\"\"\"
    return len(city)


agent = Agent(tools=[get_weather])
result = agent.run_sync("Which is warmer?")
assert (result.output, len(result.tool_executions)) == ("Bern.", 2)
```

```python
result = await Agent("anthropic:claude", [get_weather]).run("And now?")
print(result.output, len(result.tool_executions))
```

```text output
All is done. 1
```
"""


def test_the_runner_has_a_model(folder: Path, clean_environment: dict[str, str]) -> None:
    code, printed = run_document(write(folder, AGENT), folder, clean_environment, set())
    assert code == 0, printed


def test_a_reply_that_is_not_used_is_a_failure(folder: Path, clean_environment: dict[str, str]) -> None:
    document = write(folder, '<!-- replies: ["unused"] -->\n```python\nprint("fine")\n```')
    code, printed = run_document(document, folder, clean_environment, set())
    assert (code, "unused" in printed) == (1, True)


def test_an_example_has_its_own_model(folder: Path, clean_environment: dict[str, str]) -> None:
    document = write(
        folder, "```sh\necho example ${MODEL:-none} # examples.mini\n```\n```sh\necho other ${MODEL:-none}\n```"
    )
    _, printed = run_document(document, folder, clean_environment, set())
    assert "example none" in printed
    assert "other openai:stand-in" in printed


def test_the_runner_runs_every_kind_of_block(folder: Path, clean_environment: dict[str, str]) -> None:
    document = write(folder, SAMPLE)
    code, printed = run_document(document, folder, clean_environment, {"test"})
    assert code == 0, printed
    assert "hello __main__" in printed
    assert [block.kind for block in blocks_of(document, {"test"})] == ["python", "output", "python", "sh", "sh"]


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("```python\nx = 1\n\nx = undefined\n```", "line 4, in <module>"),
        ("```python\nawait undefined()\n```", "NameError"),
        ("```sh\nfalse\ntrue\n```", "exit code 1"),
        ("```sh\nfalse | cat\n```", "exit code 1"),
        ("```console\n$ cat missing.txt\nhello\n```", "missing.txt"),
        ("```python\nprint('a')\n```\n\n```text output\nb\n```", "but the document shows:\nb"),
    ],
)
def test_the_runner_fails_where_a_block_does(
    block: str, told: str, folder: Path, clean_environment: dict[str, str]
) -> None:
    code, printed = run_document(write(folder, block), folder, clean_environment, set())
    assert code != 0
    assert told in printed


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("```javascript\nx\n```", "javascript"),
        ("```json\n{\n```", "not JSON"),
        ("```sh\nmake everything\n```", "everything"),
        ("```console\n$ make everything\n```", "everything"),
    ],
)
def test_a_block_that_cannot_be_run_is_refused(block: str, told: str, folder: Path) -> None:
    with pytest.raises(UnknownBlock, match=told):
        list(blocks_of(write(folder, block), {"test"}))
