"""Writes the files of the corpus that no text editor writes: the shipping rules (DOCX) and the product sheets (PDF).

python -m examples.research.build_corpus [FOLDER]

The same texts give the same bytes, so a file that did not change is not ingested again.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).with_name("corpus")
WRITTEN = datetime(2024, 1, 1)

Section = tuple[str, Sequence[str | Sequence[Sequence[str]]]]
"""A heading, and what stands under it: paragraphs, and tables in rows."""

SHIPPING: Mapping[str, tuple[str, Sequence[Section]]] = {
    "shipping-rules.docx": (
        "Shipping rules",
        [
            (
                "Dispatch",
                [
                    "An order is shipped within 48 hours of payment. If the warehouse is late, the customer is told, "
                    "and the order is shipped with priority within 24 hours of the complaint.",
                    "Standing desks and office printers are delivered by two people and by appointment.",
                ],
            ),
            (
                "Carriers and delivery times",
                [
                    [
                        ["Region", "Carrier", "Delivery time", "Fee"],
                        ["Large cities", "SF Express", "1 to 2 days", "free from 99 yuan, else 8 yuan"],
                        ["Other mainland addresses", "JD Logistics", "3 to 5 days", "free from 99 yuan, else 12 yuan"],
                        ["Tibet, Xinjiang, Qinghai", "ZTO", "5 to 8 days", "25 yuan"],
                    ],
                ],
            ),
            (
                "Parcels that do not arrive",
                [
                    "A parcel without news for 5 days counts as lost: the carrier is asked, and the order is sent "
                    "again at no cost.",
                ],
            ),
            ("Abroad", ["We do not ship abroad, nor to Hong Kong, Macao and Taiwan."]),
        ],
    ),
    "配送规则.docx": (
        "配送规则",
        [
            (
                "发货",
                [
                    "订单在付款后48小时内发货。仓库延误的，须告知客户，并在客户投诉后24小时内优先发出。",
                    "升降桌和办公打印机由两人送货上门，须预约。",
                ],
            ),
            (
                "承运商与时效",
                [
                    [
                        ["地区", "承运商", "配送时间", "运费"],
                        ["大城市", "顺丰速运", "1至2天", "满99元包邮，否则8元"],
                        ["其他大陆地区", "京东物流", "3至5天", "满99元包邮，否则12元"],
                        ["西藏、新疆、青海", "中通快递", "5至8天", "25元"],
                    ],
                ],
            ),
            ("包裹未送达", ["物流超过5天没有更新的，按丢件处理：联系承运商，并免费重新发货。"]),
            ("境外", ["不配送境外及港澳台地区。"]),
        ],
    ),
}

SHEETS: Mapping[str, tuple[str, Sequence[Section]]] = {
    "espresso-machine.pdf": (
        "Espresso machine LM-20: product sheet",
        [
            (
                "Technical data",
                [
                    "Pump pressure 15 bar. Power 1,350 W at 220 V. Water tank 2.0 litres, removable. "
                    "Ready to brew after 25 seconds. Width 28 cm, depth 36 cm, height 38 cm; weight 9.8 kg.",
                ],
            ),
            (
                "Care",
                [
                    "Rinse the steam wand after each use. Descale the machine every 3 months, or when the lamp blinks. "
                    "Use citric acid, 30 g in a full tank; never vinegar, which harms the seals.",
                ],
            ),
            ("Warranty", ["24 months from delivery. Pump and grinder are covered, seals and filters are not."]),
        ],
    ),
    "净水器.pdf": (
        "净水器WP-5产品说明",
        [
            ("技术参数", ["额定净水流量每小时75升。功率60瓦，电压220伏。进水压力0.1至0.4兆帕。重量8.2公斤。"]),
            ("滤芯更换", ["前置滤芯每6个月更换一次，反渗透滤芯每24个月更换一次。滤芯指示灯变红时请立即更换。"]),
            ("保修", ["自签收之日起保修12个月。滤芯属于耗材，不在保修范围内。"]),
        ],
    ),
}


def docx(title: str, sections: Sequence[Section]) -> bytes:
    """A Word document."""
    from docx import Document

    document = Document()
    properties = document.core_properties
    properties.title, properties.author, properties.created = title, "Lakeside Home & Office", WRITTEN
    document.add_heading(title, 0)
    for heading, blocks in sections:
        document.add_heading(heading, 1)
        for block in blocks:
            if isinstance(block, str):
                document.add_paragraph(block)
                continue
            table = document.add_table(len(block), len(block[0]), "Table Grid")
            for cells, row in zip(block, table.rows, strict=True):
                for text, cell in zip(cells, row.cells, strict=True):
                    cell.text = text
    written = io.BytesIO()
    document.save(written)
    return undated(written.getvalue())


def undated(archive: bytes) -> bytes:
    """A ZIP file without the time at which each of its files was written."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as given, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name in given.namelist():
            made.writestr(zipfile.ZipInfo(name, WRITTEN.timetuple()[:6]), given.read(name), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def pdf(title: str, sections: Sequence[Section]) -> bytes:
    """A PDF document, in a font that has Chinese characters and is part of every viewer."""
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))  # pyright: ignore[reportUnknownMemberType] - it has no types

    def style(size: int) -> ParagraphStyle:
        return ParagraphStyle(str(size), fontName="STSong-Light", fontSize=size, leading=size * 1.5, wordWrap="CJK")

    story: list[Any] = [Paragraph(title, style(18))]
    for heading, blocks in sections:
        story.append(Paragraph(heading, style(14)))
        story += [Paragraph(str(block), style(11)) for block in blocks]
    written = io.BytesIO()
    SimpleDocTemplate(written, title=title, author="Lakeside Home & Office", invariant=1).build(story)
    return written.getvalue()


def build(folder: Path = CORPUS) -> None:
    """Write all of them into `folder`."""
    for name, (title, sections) in SHIPPING.items():
        (folder / name).write_bytes(docx(title, sections))
    for name, (title, sections) in SHEETS.items():
        (folder / name).write_bytes(pdf(title, sections))


if __name__ == "__main__":
    build(*map(Path, sys.argv[1:]))
