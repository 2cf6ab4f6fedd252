"""Files of every format become documents, and what cannot is named with the reason."""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from docx import Document as new_docx
from docx.document import Document as Docx
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfWriter
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from glassloop.core.encoding import digest
from glassloop.core.errors import LoadError
from glassloop.knowledge.documents import Document, Section
from glassloop.knowledge.load import FORMATS, load, parse

CHINESE = "退款政策\n\n客户在收到商品后七天内可以申请退款。\n"


def texts(document: Document) -> list[str]:
    return [section.text for section in document.sections]


def pdf(*pages: str, title: str = "", font: str = "Helvetica", key: Any = None, compress: int = 1) -> bytes:
    """A PDF file; "\n" in a page begins a line."""
    target = io.BytesIO()
    canvas = Canvas(target, encrypt=key, pageCompression=compress)
    canvas.setTitle(title)
    for page in pages:
        canvas.setFont(font, 12)
        for number, line in enumerate(page.split("\n")):
            canvas.drawString(72, 760 - 20 * number, line)
        canvas.showPage()
    canvas.save()
    return target.getvalue()


def docx(fill: Callable[[Docx], object]) -> bytes:
    document, target = new_docx(), io.BytesIO()
    fill(document)
    document.save(target)
    return target.getvalue()


def refused(data: bytes, source: str) -> str:
    """Why it cannot be loaded: one sentence that begins with the name."""
    with pytest.raises(LoadError) as caught:
        parse(data, source)
    message = str(caught.value)
    assert message == f"{source} {caught.value.reason}"
    assert "\n" not in message
    assert message.endswith((".", ")."))
    return caught.value.reason


# Markdown


MARKDOWN = """---
title: "Refund policy"
---
# Refunds **and** `returns`

Intro.

## Deadline

Seven days.

```
# no heading
```

> # nor this

## Silent

Setext
------
End.
"""


def test_markdown_is_cut_at_its_headings() -> None:
    document = parse(MARKDOWN.encode(), "shop/refund.md")
    top = "Refunds and returns"
    assert document == Document(
        "shop/refund.md",
        "Refund policy",
        (
            Section("Intro.", (top,), line=6, verbatim=True),
            Section("Seven days.\n\n```\n# no heading\n```\n\n> # nor this", (top, "Deadline"), line=10, verbatim=True),
            Section("Silent", (top,), line=18),
            Section("End.", (top, "Setext"), line=22, verbatim=True),
        ),
        digest(MARKDOWN.encode()),
    )


def test_a_title_is_the_front_matters_the_headings_or_the_files() -> None:
    assert parse(b"# One\n\ntext", "a.md").title == "One"
    assert parse(b"## Two\n\ntext", "dir/a.md").title == "a.md"
    assert parse(b"---\ntext\n\n# Three\n", "a.md").title == "Three"


def test_a_heading_as_long_as_a_paragraph_is_text() -> None:
    document = parse(f"# {'long ' * 60}\n\ntext".encode(), "a.md")
    assert {section.headings for section in document.sections} == {()}
    assert texts(document)[0].startswith("long long")


# Text and encodings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030", "gbk"]
)
def test_text_is_read_in_every_usual_encoding(encoding: str) -> None:
    assert texts(parse(CHINESE.encode(encoding), "a.txt")) == [CHINESE]


def test_western_text_is_read_as_such() -> None:
    text = "Müller zahlt 5 € – café, naïve “quoted”.\n"
    assert texts(parse(text.encode("cp1252"), "a.txt")) == [text]
    assert texts(parse("ASCII in UTF-16\n".encode("utf-16-be"), "a.txt")) == ["ASCII in UTF-16\n"]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("返品は三十日以内にお願いします。", "shift-jis"),
        ("Возврат в течение семи дней", "koi8-r"),
        ("退貨規定說明", "big5"),
    ],
)
def test_text_in_another_encoding_is_refused_and_never_garbled(text: str, encoding: str) -> None:
    assert "unknown encoding" in refused((text * 3).encode(encoding), "a.txt")


def test_a_broken_character_is_not_replaced() -> None:
    assert "unknown encoding" in refused("退款政策，七天".encode()[:-1] + b" more text here \xff\xff", "a.txt")
    assert "begins as UTF-8" in refused(b"\xef\xbb\xbfabc\xff", "a.txt")
    assert "unknown encoding" in refused(b"mostly ASCII, and then some signs \xac\xa6 of somewhere else", "a.txt")


def test_line_ends_are_one_and_controls_are_gone() -> None:
    assert texts(parse(b"a\r\nb\rc\x07\x0cd\n" + b"word " * 99, "a.txt"))[0].startswith("a\nb\nc d\nword")


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.html"])
def test_binary_is_refused_whatever_its_name(name: str) -> None:
    chance = random.Random(1)
    assert "binary" in refused(b"\x89PNG\r\n\x1a\n" + chance.randbytes(2000), name)
    assert "binary" in refused(b"".join(chance.randrange(0xD800).to_bytes(2, "little") for _ in range(2000)), name)
    assert "binary" in refused(bytes(range(32)) * 9 + b"some words", name)


@pytest.mark.parametrize("name", sorted(f"a{suffix}" for suffix in FORMATS))
def test_blank_files_are_refused(name: str) -> None:
    assert refused(b" \n\n ", name)


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    assert refused(b"x", "a.exe").startswith("is of an unknown kind (.exe): Markdown, text,")
    assert refused(b"x", "README").startswith("has no suffix")
    assert texts(parse(b"x", "A.TXT")) == ["x"]


# HTML

PAGE = """<!doctype html><html><head><title>Shipping &amp; returns</title><style>p {}</style></head><body>
<nav><a href="/">Home</a></nav>
<h1>Ship<b>ping</b></h1>
<p>Free <i>shipping</i>
   over 50.<br>Since May.</p>
<ul><li>one<li><p>two</p><ul><li>inner</ul></ul>
<table><caption>Prices</caption><tr><th>Size<th>Price<tr><td>S|M<td>10 <i>EUR</i><tr><td></table>
<h2>Code</h2><pre>def f():
    return 1</pre>
<div hidden>invisible</div><div style="color: red; display:none">invisible</div><script>run()</script><!-- invisible -->
<table><tr><td><h2>In a layout</h2><p>cell text</p></td></tr></table>
<h2>Silent</h2></body></html>"""


def test_html_is_what_a_reader_sees() -> None:
    document = parse(PAGE.encode(), "a.html")
    assert document.title == "Shipping & returns"
    assert document.sections == (
        Section(
            "Free shipping over 50.\nSince May.\n\n- one\n- two\n- inner\n\nPrices\n\n"
            "| Size | Price |\n| --- | --- |\n| S\\|M | 10 EUR |",
            ("Shipping",),
        ),
        Section("```\ndef f():\n    return 1\n```", ("Shipping", "Code")),
        Section("cell text", ("Shipping", "In a layout")),
        Section("Silent", ("Shipping",)),
    )


def test_html_may_declare_its_encoding() -> None:
    page = '<meta charset="gb2312"><title>x</title><p>退貨規定說明</p>'  # as is usual, it says less than it means
    assert texts(parse(page.encode("gb18030"), "a.htm")) == ["退貨規定說明"]
    japanese = '<?xml version="1.0" encoding="shift_jis"?><html><body><p>返品は三十日以内</p></body></html>'
    assert texts(parse(japanese.encode("shift_jis"), "a.xhtml")) == ["返品は三十日以内"]
    assert texts(parse(b'<?xml version="1.0"?><p>no page around it</p>', "a.xhtml")) == ["no page around it"]


def test_html_without_any_tag_is_text() -> None:
    assert texts(parse(b"http://example.com/", "a.html")) == ["http://example.com/"]


def test_html_that_is_nested_without_end_is_refused() -> None:
    assert "nested too deeply" in refused(b"<div>" * 3000 + b"x", "a.html")


# PDF


def test_pdf_has_pages() -> None:
    document = parse(pdf("First page.", "", "Third (3) page:\nrefunds take 48 h.", title="Policy"), "a.pdf")
    assert document.title == "Policy"
    assert document.sections == (Section("First page.", page=1), Section("Third (3) page:\nrefunds take 48 h.", page=3))
    assert parse(pdf("x", title="untitled"), "a.pdf").title == "a.pdf"


def test_chinese_pdf_has_words_that_line_breaks_do_not_cut() -> None:
    fonts: Any = pdfmetrics
    fonts.registerFont(UnicodeCIDFont("STSong-Light"))
    page = "退款政策\n客户在收到商品后的七天之内可以向客服申请退\n款，客服将在四十八小时内答复。\n价格\n十元"
    document = parse(pdf(page, font="STSong-Light", title="政策"), "a.pdf")
    assert document.title == "政策"
    assert texts(document) == [page.replace("退\n款", "退款")]


def test_an_encrypted_pdf_is_named_and_one_that_only_forbids_printing_is_read() -> None:
    locked = pdf("secret", key=StandardEncryption("password", ownerPassword="owner", strength=128))
    assert refused(locked, "a.pdf") == "is encrypted: save it without a password."
    strong = PdfWriter(clone_from=io.BytesIO(pdf("secret")))
    strong.encrypt("password", algorithm="AES-256")
    target = io.BytesIO()
    strong.write(target)
    assert refused(target.getvalue(), "a.pdf") == "is encrypted: save it without a password."
    open_ = pdf("readable", key=StandardEncryption("", ownerPassword="owner", canPrint=0, strength=128))
    assert texts(parse(open_, "a.pdf")) == ["readable"]


def test_a_pdf_without_text_is_named() -> None:
    target = io.BytesIO()
    canvas = Canvas(target)
    canvas.rect(10, 10, 100, 100)
    canvas.save()
    assert "no text layer: run OCR" in refused(target.getvalue(), "scan.pdf")


def test_a_broken_pdf_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    whole = pdf("some text", compress=0)
    assert "broken, or no PDF" in refused(b"%PDF-1.4\nnonsense", "a.pdf")
    assert "broken, or no PDF" in refused(b"hello", "a.pdf")
    for cut in range(100, len(whole), 97):
        with suppress(LoadError):  # what is there of a cut file may be enough
            parse(whole[:cut], "a.pdf")
    assert capfd.readouterr() == ("", "")


# DOCX


def fill(document: Docx) -> None:
    document.core_properties.title = ""
    document.add_heading("Travel policy", 0)
    document.add_paragraph("Everybody may travel.")
    document.add_heading("差旅标准", 1)
    document.add_heading("酒店", 2)
    document.add_paragraph("每晚不超过五百元。")
    document.add_paragraph("single room", style="List Bullet")
    document.add_paragraph("breakfast", style="List Bullet")
    table = document.add_table(2, 3)
    for cell, text in zip(
        [*table.rows[0].cells, *table.rows[1].cells], ["城市", "上限", "a|b", "北京", "600", "x"], strict=True
    ):
        cell.text = text
    table.rows[0].cells[0].merge(table.rows[0].cells[1])
    document.add_paragraph("after the table")


def test_docx_has_headings_lists_and_tables_in_their_order() -> None:
    document = parse(docx(fill), "a.docx")
    assert document.title == "Travel policy"
    assert document.sections == (
        Section("Everybody may travel.", ("Travel policy",)),
        Section(
            "每晚不超过五百元。\n\n- single room\n- breakfast\n\n"
            "| 城市 上限 |  | a\\|b |\n| --- | --- | --- |\n| 北京 | 600 | x |\n\nafter the table",
            ("Travel policy", "差旅标准", "酒店"),
        ),
    )


def test_docx_in_content_controls_insertions_and_text_boxes_is_read_once() -> None:
    box = "<w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent>"
    markup = (
        f"<w:sdt {nsdecls('w')}><w:sdtContent><w:p><w:pPr><w:tabs><w:tab w:val='left' w:pos='1'/></w:tabs></w:pPr>"
        "<w:r><w:t>kept</w:t></w:r><w:ins w:id='1'><w:r><w:t xml:space='preserve'> inserted</w:t></w:r></w:ins>"
        "<w:del w:id='2'><w:r><w:delText>deleted</w:delText></w:r></w:del>"
        "<w:moveFrom w:id='3'><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p></w:sdtContent></w:sdt>"
    )
    drawing = (
        f"<w:p {nsdecls('w')} xmlns:mc='http://schemas.openxmlformats.org/markup-compatibility/2006'><w:r>"
        f"<mc:AlternateContent><mc:Choice Requires='wps'>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
        "</mc:AlternateContent></w:r></w:p>"
    )

    def build(document: Docx) -> None:
        tree: Any = document.element
        tree.body.insert(0, parse_xml(markup))
        tree.body.insert(1, parse_xml(drawing))

    assert texts(parse(docx(build), "a.docx")) == ["kept inserted\n\nboxed"]


def test_a_style_based_on_a_heading_and_an_outline_level_are_headings() -> None:
    def build(document: Docx) -> None:
        styles: Any = document.styles
        styles.add_style("House chapter", WD_STYLE_TYPE.PARAGRAPH).base_style = styles["Heading 1"]
        document.add_paragraph("Chapter", style="House chapter")
        paragraph: Any = document.add_paragraph("Part")
        paragraph._p.get_or_add_pPr().append(parse_xml(f"<w:outlineLvl {nsdecls('w')} w:val='1'/>"))
        document.add_paragraph("text")

    assert parse(docx(build), "a.docx").sections == (Section("text", ("Chapter", "Part")),)


def test_a_broken_or_encrypted_docx_is_named() -> None:
    whole = docx(fill)
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    assert "broken, or no DOCX" in refused(b"hello", "a.docx")
    assert "broken, or no DOCX" in refused(whole[: len(whole) // 2], "a.docx")
    assert refused(ole + "EncryptedPackage".encode("utf-16-le"), "a.docx").startswith("is encrypted")
    assert "an old Word file" in refused(ole + b"whatever", "a.docx")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "no document")
    assert "broken, or no DOCX" in refused(other.getvalue(), "a.docx")


@pytest.mark.parametrize(("part", "megabytes"), [("word/extra.xml", 60), ("word/media/image1.png", 210)])
def test_a_docx_that_unpacks_to_too_much_is_named_before_it_is_unpacked(part: str, megabytes: int) -> None:
    target = io.BytesIO(docx(fill))
    with (
        zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(part, "w") as file,
    ):
        for _ in range(megabytes):
            file.write(bytes(1_000_000))
    assert "which is too much" in refused(target.getvalue(), "bomb.docx")


# CSV


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "utf-16"])
def test_csv_rows_are_lines_of_column_and_value(delimiter: str, encoding: str) -> None:
    rows = ["name,city,note", "Ann,北京,", '"Bo, B.",上海,"two\nlines"', "", "Cy,深圳,x,extra"]
    table = "\n".join(row.replace(",", delimiter).replace(f"Bo{delimiter}", "Bo,") for row in rows)
    assert parse(table.encode(encoding), "a.csv").sections == (
        Section("name: Ann\ncity: 北京", line=2),
        Section("name: Bo, B.\ncity: 上海\nnote: two lines", line=3),
        Section("name: Cy\ncity: 深圳\nnote: x\ncolumn 4: extra", line=5),
    )


def test_csv_without_a_header_numbers_its_columns() -> None:
    assert parse(b"2024001,Ann\n2024002,Bo\n", "a.csv").sections == (
        Section("column 1: 2024001\ncolumn 2: Ann", line=1),
        Section("column 1: 2024002\ncolumn 2: Bo", line=2),
    )


def test_csv_of_excel_may_tell_its_delimiter_and_of_one_column_needs_none() -> None:
    assert texts(parse(b"sep=;\r\na;b\r\n1,5;2\r\n", "a.csv")) == ["a: 1,5\nb: 2"]
    assert texts(parse(b"question\nHow long, please?\n", "a.csv")) == ["question: How long\ncolumn 2: please?"]
    assert texts(parse(b'name, note\nAnn, "one, two"\n', "a.csv")) == ["name: Ann\nnote: one, two"]
    assert texts(parse(b"question\nHow long\nHow much\n", "a.csv")) == ["question: How long", "question: How much"]


def test_csv_with_a_cell_beyond_all_bounds_is_named() -> None:
    assert "is no valid CSV (line" in refused(b'a,b\n"' + b"x" * 200_000 + b'",1\n', "a.csv")


# Whatever the bytes

SEEDS = {
    "a.md": MARKDOWN.encode(),
    "a.html": PAGE.encode(),
    "a.csv": 'name,city\nAnn,北京\n"x\ny",2\n'.encode("gb18030"),
    "a.txt": CHINESE.encode("utf-16"),
    "a.docx": docx(fill),
    "a.pdf": pdf("First page.", "Second page.", compress=0),
}


@pytest.mark.parametrize("name", SEEDS)
@settings(max_examples=40, deadline=None)
@given(place=st.floats(0, 1), gone=st.integers(0, 40), new=st.binary(max_size=20))
def test_a_damaged_file_is_a_document_or_is_named(name: str, place: float, gone: int, new: bytes) -> None:
    seed = SEEDS[name]
    at = int(place * len(seed))
    try:
        document = parse(seed[:at] + new + seed[at + gone :], name)
    except LoadError as error:
        assert error.source == name  # noqa: PT017 - one or the other
    else:
        assert all(section.text.strip() and "\0" not in section.text for section in document.sections)


# Files


def test_a_file_is_named_as_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text", "utf-8")
    assert load(tmp_path / "a.md").source == "a.md"
    assert load(str(tmp_path / "a.md"), source="docs/a.md").source == "docs/a.md"


def test_what_is_no_readable_file_is_named(tmp_path: Path) -> None:
    def why(name: str, **options: Any) -> str:
        with pytest.raises(LoadError) as caught:
            load(tmp_path / name, **options)
        assert str(tmp_path) not in str(caught.value)
        return caught.value.reason

    (tmp_path / "empty.md").touch()
    (tmp_path / "large.md").write_bytes(b"x" * 1001)
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "dangling.md").symlink_to("nowhere.md")
    os.mkfifo(tmp_path / "pipe.md")
    assert why("missing.md").startswith("does not exist")
    assert why("empty.md").startswith("is empty")
    assert why("large.md", max_bytes=1000).startswith("is too large")
    assert load(tmp_path / "large.md", max_bytes=1001).sections
    assert why("folder.md").startswith("is a folder")
    assert why("loop.md").startswith("is a link that leads back to itself")
    assert why("dangling.md").startswith("is a link to a file that is not there")
    assert why("pipe.md").startswith("is no regular file")
    assert why("empty.md/a.md").startswith("does not exist")
