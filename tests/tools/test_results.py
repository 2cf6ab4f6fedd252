from __future__ import annotations

import array
import base64
import datetime
import enum
import io
import math
import re
import sqlite3
import types
import uuid
from collections import Counter, OrderedDict, UserDict, UserString, deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from glassloop import Agent
from glassloop.core.encoding import dumps, loads
from glassloop.core.messages import Media
from glassloop.models.scripted import ScriptedModel, call
from glassloop.tools.results import capped, render_result

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8


class Color(enum.Enum):
    RED = "red"


class Model(BaseModel):
    day: datetime.date = datetime.date(2020, 1, 1)
    secret: SecretStr = SecretStr("pw")
    ratio: float = math.nan


class ModelWithBytes(BaseModel):
    picture: bytes = PNG


@dataclass
class Point:
    x: int
    y: Any


class Pair(NamedTuple):
    a: int
    b: int


class Plain:
    pass


class Spoken:
    def __str__(self) -> str:
        return "spoken"


class Repr:
    def __repr__(self) -> str:
        return f"Repr(secret at {id(self):#x})"


class Broken:
    def __str__(self) -> str:
        raise ValueError

    @property
    def columns(self) -> None:
        raise OSError("no")


class Image:
    """As PIL's."""

    mode = "RGB"
    size = (1, 1)

    def save(self, file: io.BytesIO, format: str) -> None:
        assert format == "PNG"
        file.write(PNG)


def content(value: object) -> str:
    return render_result(value).content


# Text and JSON


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("sunny", "sunny"),
        (5, "5"),
        (True, "true"),
        (1.5, "1.5"),
        (math.nan, "null"),
        ({"a": math.inf}, '{"a":null}'),
        ({"msg": "今天放假 明日 é 🌍"}, '{"msg":"今天放假 明日 é 🌍"}'),
        (Color.RED, "red"),
        (Point(1, Color.RED), '{"x":1,"y":"red"}'),
        (Model(), '{"day":"2020-01-01","secret":"**********","ratio":null}'),
        ([Model()], '[{"day":"2020-01-01","secret":"**********","ratio":null}]'),
        (Pair(1, 2), '{"a":1,"b":2}'),
        ((1, "a"), '[1,"a"]'),
        ({3, 1, 10, 2}, "[1,2,3,10]"),
        ({"b", 1}, '["b",1]'),
        (datetime.datetime(2026, 2, 28, 10, tzinfo=datetime.UTC), "2026-02-28T10:00:00Z"),
        (datetime.timedelta(hours=1), "PT1H"),
        (Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b.txt"), "a/b.txt"),
        ({1: 2, None: 3, (1, 2): 4, Color.RED: 5, 1.5: 6}, '{"1":2,"null":3,"[1,2]":4,"red":5,"1.5":6}'),
        (deque([1]), "[1]"),
        (range(3), "[0,1,2]"),
        ({"a": 1}.keys(), '["a"]'),
        (Counter("aab"), '{"a":2,"b":1}'),
        (OrderedDict([("a", 1)]), '{"a":1}'),
        (UserDict(a=1), '{"a":1}'),
        (UserString("text"), "text"),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        (types.SimpleNamespace(a=1), '{"a":1}'),
        (array.array("i", [1, 2]), "[1,2]"),
        (map(abs, [-1]), "[1]"),
        ({"rows": (n for n in range(2))}, '{"rows":[0,1]}'),
        (b"plain text\n", "plain text\n"),
        (ValueError("bad"), "ValueError: bad"),
    ],
)
def test_what_the_model_reads(value: object, expected: str) -> None:
    assert content(value) == expected


@pytest.mark.parametrize("value", [[], (), set[int](), {}, "", "  \n", b"", deque[int]()])
def test_empty_results_say_that_the_call_worked(value: object) -> None:
    rendered = render_result(value)
    assert re.search(r"(?i)no (matching )?(results|documents|matches)", rendered.content)
    assert "worked" in rendered.content
    assert not rendered.complete


def test_none_is_done() -> None:
    assert content(None) == "Done; nothing to report."


async def coroutine() -> None: ...


@pytest.mark.parametrize("value", [Plain(), Repr(), Broken(), object(), Plain, len, types, lambda: 1, io.StringIO("x")])
def test_no_repr_and_no_address_ever_reaches_the_model(value: object) -> None:
    for text in (content(value), content([value]), content({"k": value})):
        assert type(value).__name__ in text
        assert not re.search(r"0x[0-9a-f]|<.*>|secret", text)


def test_coroutines_and_own_texts() -> None:
    pending = coroutine()
    assert content(pending) == "[coroutine]"
    pending.close()
    assert content([Spoken()]) == '["[Spoken] spoken"]'


def test_circles_and_depth_end() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert content(circle) == '[1,"[refers to itself]"]'
    twice = [1]
    assert content([twice, twice]) == "[[1],[1]]"
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert "nested too deeply" in content(deep)


def test_an_iterator_without_an_end_ends() -> None:
    def forever() -> Iterator[int]:
        while True:
            yield 1

    assert len(render_result({"n": forever()}).value["n"]) == 100_000


def test_lone_surrogates_do_not_break_the_json() -> None:
    assert dumps(render_result(["\ud83d"]).content)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner),
)


@given(PLAIN)
def test_the_whole_value_is_had_back_where_the_content_is_complete(value: Any) -> None:
    rendered = render_result(value)
    assert rendered.value == value
    assert rendered.content
    if rendered.complete:
        assert (loads(rendered.content) if rendered.form == "json" else rendered.content) == value


# Media


def test_bytes_of_images_are_media_and_never_base64() -> None:
    rendered = render_result(PNG)
    assert [(media.media_type, media.content) for media in rendered.media] == [("image/png", PNG)]
    assert rendered.content == f"[image/png, {len(PNG):,} bytes, attached]"
    assert rendered.value["digest"] == rendered.media[0].digest
    assert not rendered.complete


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a\x00", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"BM\x00\x00\x00\x00\x00\x00\x00\x00", "image/bmp"),
        (b"%PDF-1.7\x00", "application/pdf"),
        (b"\x00\x00\x00\x18ftypmp42", "video/mp4"),
        (b"\x00\xff", "application/octet-stream"),
        (b"text\x00", "application/octet-stream"),
    ],
)
def test_magic_numbers(data: bytes, media_type: str) -> None:
    assert render_result(data).media[0].media_type == media_type


def test_a_text_that_begins_like_an_image_is_text() -> None:
    assert content(b"BMW and others") == "BMW and others"


def test_text_and_media_in_a_list_read_as_text() -> None:
    rendered = render_result(["Chart:", Media.of(PNG, "image/png", "chart.png"), Image()])
    size = f"{len(PNG):,}"
    assert rendered.content == (
        f"Chart:\n[chart.png, image/png, {size} bytes, attached]\n[image/png, {size} bytes, attached]"
    )
    assert [media.name for media in rendered.media] == ["chart.png", None]


@pytest.mark.parametrize("value", [{"picture": PNG, "n": 1}, ModelWithBytes(), Point(1, PNG), {"rows": [{"p": PNG}]}])
def test_media_inside_other_values_leave_a_reference(value: object) -> None:
    rendered = render_result(value)
    assert rendered.media[0].content == PNG
    assert rendered.media[0].digest in rendered.content
    assert len(rendered.content) < 200
    assert rendered.form == "json"


# Cutting


def test_a_huge_result_keeps_head_and_tail_and_the_whole_value() -> None:
    text = "HEAD " + "x" * 5_000_000 + " END-OF-DATA"
    rendered = render_result(text)
    assert len(rendered.content) <= 40_000
    assert rendered.content.startswith("HEAD x")
    assert rendered.content.endswith("x END-OF-DATA")
    assert re.search(r"\[\.\.\. [\d,]+ of 5,000,017 characters omitted \.\.\.\]", rendered.content)
    assert rendered.value == text
    assert not rendered.complete
    head, _, tail = rendered.content.partition("\n[...")
    assert len(head) == pytest.approx(3 * len(tail), rel=0.01)


def test_a_huge_list_is_cut_as_text_and_kept_whole() -> None:
    rows = [{"n": number} for number in range(20_000)]
    rendered = render_result(rows, cap=1_000)
    assert len(rendered.content) <= 1_000
    assert rendered.value == rows
    assert not rendered.complete


CHARACTERS = ["a", "é", "e\u0301", "👩‍👩‍👧", "👍🏽", "🇩🇪", "❤️", "漢", "🌍"]


@given(st.lists(st.sampled_from(CHARACTERS), min_size=1, max_size=400), st.integers(0, 300))
def test_capped_text_fits_and_no_character_is_cut(letters: list[str], cap: int) -> None:
    text = "".join(letters)
    cut = capped(text, cap)
    assert len(cut) <= cap or cut == text
    cut.encode()
    if len(text) > cap:
        head, notice, tail = cut.partition("\n[...")
        assert text.startswith(head)
        assert head in {"".join(letters[:n]) for n in range(len(letters) + 1)}
        if notice:
            tail = tail.partition("...]\n")[2]
            assert tail in {"".join(letters[n:]) for n in range(len(letters) + 1)}


@given(st.text(max_size=500), st.integers(0, 400))
def test_any_text_is_capped(text: str, cap: int) -> None:
    assert len(capped(text, cap)) <= max(cap, 0) or len(text) <= cap


def test_the_notice_counts_what_is_missing() -> None:
    text = "".join(chr(97 + number % 26) for number in range(10_000))
    cut = capped(text, 500)
    head, _, rest = cut.partition("\n[... ")
    number, _, tail = rest.partition(" of 10,000 characters omitted ...]\n")
    assert len(head) + int(number.replace(",", "")) + len(tail) == 10_000


def test_rows_of_a_database_keep_their_names() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("SELECT 1 AS id, 'Oslo' AS city").fetchall()
        twice = database.execute("SELECT 1 AS id, 2 AS id").fetchone()
    assert content(rows) == '[{"id":1,"city":"Oslo"}]'
    assert content(rows[0]) == '{"id":1,"city":"Oslo"}'
    assert content(twice) == "[1,2]"


def test_an_image_in_a_model_is_an_image() -> None:
    class Page(BaseModel):
        title: str
        shots: list[Any]

    class Book(BaseModel):
        pages: list[Page]

    image = Media.of(PNG, "image/png")
    shown = render_result(Book(pages=[Page(title="one", shots=[image])]))
    assert shown.media == (image,)
    assert shown.value["pages"][0]["shots"] == [{"media_type": "image/png", "size": image.size, "digest": image.digest}]


HUGE = 10**5_000


@pytest.mark.parametrize("value", [HUGE, -HUGE, [HUGE], {"n": {"of": HUGE}}], ids=["alone", "negative", "list", "deep"])
async def test_a_number_that_no_reader_of_json_takes_is_a_text(value: Any) -> None:
    """python/cpython#95778: a factorial, say. Read back from the journal, it would end the run."""
    digits = "1" + "0" * 5_000
    rendered = render_result(value, cap=20_000)
    assert digits in rendered.content
    assert loads(dumps(rendered.value)) == rendered.value
    assert render_result(10**4_000).value == 10**4_000

    def compute() -> Any:
        return value

    result = await Agent(ScriptedModel([call("compute"), "done"]), [compute]).run("go")
    assert (result.outcome, result.tool_executions[0].value) == ("completed", rendered.value)


BASE64 = base64.b64encode(PNG).decode()
SHOWN = f"[image/png, {len(PNG):,} bytes, attached]"


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (BASE64, SHOWN),
        (f"data:image/png;base64,{BASE64}", SHOWN),
        (f"data:image/jpeg;charset=utf-8;base64,{BASE64}", SHOWN),
        (base64.encodebytes(PNG).decode(), SHOWN),
        (["Chart:", f"data:image/png;base64,{BASE64}"], f"Chart:\n{SHOWN}"),
    ],
    ids=["bare", "url", "mislabelled", "in lines", "in a list"],
)
def test_an_image_in_base64_is_an_image(value: Any, content: str) -> None:
    """microsoft/playwright-mcp#277: each later request carries a screenshot as text, in which nobody sees anything."""
    rendered = render_result(value)
    assert rendered.content == content
    assert [(media.media_type, media.content) for media in rendered.media] == [("image/png", PNG)]


@pytest.mark.parametrize("wrapped", [BASE64, base64.encodebytes(PNG).decode()])
def test_an_image_in_base64_leaves_the_rest_of_its_object_as_it_is(wrapped: str) -> None:
    """agent-sh/computer-use-linux#145: 120 kB of a result of 135 kB are the screenshot."""
    rendered = render_result(
        {"window": "Editor", "shots": [{"data_url": f"data:image/png;base64,{wrapped}", "width": 9}]}
    )
    (image,) = rendered.media
    described = {"media_type": "image/png", "size": len(PNG), "digest": image.digest}
    assert rendered.value == {"window": "Editor", "shots": [{"data_url": described, "width": 9}]}
    assert loads(rendered.content) == rendered.value
    assert image.content == PNG


@pytest.mark.parametrize(
    "text",
    [
        "data:image/png;base64,AAAA",
        "data:text/plain;base64," + base64.b64encode(b"word " * 400).decode(),
        "iVBORw0KGgo" + "A" * 1_200 + "!",
        "R0lGOD" + "A" * 1_001,
        "/9j/ is how each of them begins: " + "word " * 300,
        f"See: data:image/png;base64,{BASE64}",
        "JVBERi0" + "A" * 2_000 + "=" * 5,
        "/9j/" + " " * 1_000_000 + "!",  # in time: who tries each of the blanks twice takes an hour
    ],
    ids=["short", "no image", "no base64", "an odd length", "words", "an image in a sentence", "padding", "blanks"],
)
def test_a_text_that_only_looks_like_base64_is_a_text(text: str) -> None:
    for value in (text, {"text": text}):
        rendered = render_result(value)
        assert (rendered.value, rendered.media) == (value, ())
