"""Whether a reply without tool calls is an answer."""

from __future__ import annotations

import pytest

from glassloop.journal.verdict import call_as_text, promises


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


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>',
        '{"name": "add", "arguments": {"a": 2, "b": 3}}',
        '```json\n{"name": "add", "parameters": {"a": 2}}\n```',
        '[{"name": "add", "arguments": {}}, {"name": "now", "arguments": {}}]',
        '{"type": "function", "function": {"name": "add", "arguments": "{}"}}',
        '<function=add>{"a": 2, "b": 3}</function>',
        '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]',
        "Let me add.\n<tool_call>{}</tool_call>",
        '{"action": "search", "action_input": "x"}',
    ],
)
def test_a_call_written_as_text_is_seen(text: str) -> None:
    assert call_as_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "The sum is 5.",
        '{"total": 5, "currency": "EUR"}',
        '{"name": "Ada", "age": 36}',
        "[1, 2, 3]",
        "Here is how a call looks:\n```xml\n<tool_call>{}</tool_call>\n```\nIt is only an example, of course.",
        "Use the <b>add</b> button.",
    ],
)
def test_json_and_markup_that_are_answers_stay_answers(text: str) -> None:
    assert not call_as_text(text)
