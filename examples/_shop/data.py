"""What the shop's tables hold when they are made, in English and Chinese."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Row = tuple[str | None, ...]


def orders() -> Iterator[Row]:
    """The rows of orders.csv; what is empty there is unknown. SQLite makes numbers of the columns that hold some."""
    with Path(__file__).with_name("orders.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            yield tuple(value or None for value in row)


@dataclass(frozen=True)
class Policy:
    """A rule of after-sales service; `words` are what customers say who need it, in both languages."""

    policy_id: str
    title: str
    title_zh: str
    text: str
    text_zh: str
    words: str


POLICIES = (
    Policy(
        "P-01",
        "Late shipping",
        "发货时效",
        "An order ships within 48 hours of payment. Is it paid and not shipped after that, apologise and open a ticket "
        "with priority high: the warehouse then ships within 24 hours. A customer who no longer wants it is refunded "
        "in full.",
        "订单在付款后48小时内发货。超过48小时仍未发货的，先向客户致歉，再创建工单，优先级：高，仓库在24小时内发出；客户不想要的，全额退款。",
        "never shipped not unshipped ship shipping shipment late delay 未发货 没发货 不发货 没有发货 发货 催单 迟迟",
    ),
    Policy(
        "P-02",
        "Refunds",
        "退款规则",
        "A refund goes back the way the order was paid, within 3 working days of its confirmation, and is never more "
        "than was paid. Above 500 yuan a supervisor confirms it.",
        "退款在确认后3个工作日内原路退回，不超过实付金额。超过500元的退款须由主管确认。",
        "refund refunds refunded money back reimburse 退款 退钱 退回 返还",
    ),
    Policy(
        "P-03",
        "Damaged or faulty goods",
        "商品破损或故障",
        "Goods that arrive damaged or fail within 7 days of delivery are exchanged or refunded, as the customer likes. "
        "Ask for a photo and open a ticket with priority normal.",
        "收货时破损或签收7天内出现故障的商品，按客户意愿换货或退款。请客户提供照片，并创建工单，优先级：普通。",
        "broken damaged damage faulty defective cracked scratched 破损 损坏 坏 故障 裂 划痕 质量",
    ),
    Policy(
        "P-04",
        "Wrong or missing items",
        "错发与漏发",
        "For a wrong or a missing item open a ticket with priority normal; the right one is sent within 48 hours, and "
        "the customer keeps the wrong one until it is collected.",
        "发错货或漏发的，创建工单，优先级：普通；48小时内补发，错发商品由快递上门取回。",
        "wrong missing item instead incomplete 发错 错发 漏发 少发 少了 不对",
    ),
    Policy(
        "P-05",
        "Parcels that do not arrive",
        "包裹未送达",
        "A parcel without news for 5 days counts as lost. Open a ticket with priority urgent: the carrier is asked, "
        "and the order is sent again.",
        "物流超过5天没有更新的，按丢件处理：创建工单，优先级：紧急，联系承运商并重新发货。",
        "lost arrived arrive received parcel package stuck 没收到 未收到 没到 丢件 丢失 物流 停滞",
    ),
    Policy(
        "P-06",
        "Returns within 7 days",
        "七天无理由退货",
        "Unused goods may be returned within 7 days of delivery; the customer pays the way back. Open a ticket with "
        "priority low.",
        "商品未使用的，签收7天内可无理由退货，运费由客户承担。创建工单，优先级：低。",
        "return returns send back changed mind 退货 无理由 不想要 不喜欢",
    ),
    Policy(
        "P-07",
        "Invoices",
        "发票",
        "An electronic invoice is sent within 2 working days of the request.",
        "电子发票在申请后2个工作日内发出。",
        "invoice invoices receipt vat 发票 开票",
    ),
)
