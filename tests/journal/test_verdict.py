"""Whether a reply without tool calls is an answer."""

from __future__ import annotations

import pytest

from glassloop.journal.verdict import promises


@pytest.mark.parametrize(
    "text",
    [
        "I'll look that up for you.",
        "Sure! Let me check the weather in Beijing.",
        "I will now query the order status.",
        "Let me first search the knowledge base...",
        "One moment please.",
        "I'm going to calculate that. Please wait.",
        "I'll check the weather in Beijing. This may take a few seconds.",
        "To answer this I need to look up the policy:",
        "我来查一下北京的天气。",
        "好的，请稍等，我马上为您查询订单。",
        "让我先搜索一下相关文档。",
        "正在为您查询，请稍候……",
    ],
)
def test_a_promise_is_not_an_answer(text: str) -> None:
    assert promises(text)


@pytest.mark.parametrize(
    "text",
    [
        "It is 21 degrees in Beijing.",
        "Shanghai is hotter. Let me know if you need anything else.",
        "Would you like me to check the weather in Oslo too?",
        "The train is going to run late because of snow.",
        "I can look that up if you give me the order number.",
        "Let me explain: the refund takes 3 days.",
        "I'll use metric units. It is 21 degrees.",
        "上海更热，31 度。",
        "需要我帮您查询其他城市吗？",
        "如果需要，我来查一下物流。",
        "",
        "   \n",
    ],
)
def test_an_answer_a_question_and_an_offer_are_no_promise(text: str) -> None:
    assert not promises(text)
