"""Whether a reply without tool calls is an answer."""

from __future__ import annotations

import pytest

from glassloop.journal.verdict import announces, promises


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
        "I will now inspect the configuration.",
        "Now reading the configuration:",
        "接下来读取文件：",
        "接下来执行测试。",
    ],
)
def test_a_promise_is_not_an_answer(text: str) -> None:
    """Public, of the last ones: NousResearch/hermes-agent#78113, NousResearch/hermes-agent#114174."""
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


@pytest.mark.parametrize(
    "text",
    [
        "Reading the brief file first.",
        "OK, checking the catalog:",
        "I'm so sorry for all the delays! Let me actually do it now!",
        "I will update the configuration.",
        "The first step…",
        "接下来查询订单。",
    ],
)
def test_words_before_a_call_announce_it(text: str) -> None:
    assert announces(text)


@pytest.mark.parametrize(
    "text", ["The answer is 5.", "Hello! How can I help?", "Let me know if that helps.", "好的。", "Done.", "  "]
)
def test_an_answer_and_a_question_announce_nothing(text: str) -> None:
    assert not announces(text)
