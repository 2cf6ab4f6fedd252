"""Tool calls written as text, told from answers."""

from __future__ import annotations

import json

import pytest

from glassloop.journal.written import call_as_text

TOOLS = ("add", "now", "read_file")
FENCE = "`" * 3
HERMES = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
CALL = '{"name": "add", "arguments": {"a": 2}}'

DIALECTS = {
    "Hermes and Qwen": HERMES,
    "Hermes, never closed": HERMES.removesuffix("\n</tool_call>"),
    "Hermes after words": f"Let me add.\n{HERMES}",
    "Hermes after many words": "First I should think about what to do here. " * 9 + f"\n{HERMES}",
    "Hermes with a fence in its arguments": f'I write.\n<tool_call>{{"text": "{FENCE}py\\n1\\n{FENCE}"}}</tool_call>',
    "Qwen coder, QwenLM/qwen-code#10692": "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n</function>",
    "Qwen coder, its end, signalnine/q27#24": "<parameter=add>\n<parameter=a>\n2\n</parameter>\n</function>",
    "GLM": "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
    "GLM without its beginning": "add\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>",
    "Anthropic, anthropics/claude-code#71508": 'I read it.\n\n<invoke name="add">\n<parameter name="a">2</parameter>',
    "MiniMax": '<minimax:tool_call>\n<invoke name="add">\n</invoke>\n</minimax:tool_call>',
    "DeepSeek": f"<｜tool▁calls▁begin｜>function<｜tool▁sep｜>add\n{FENCE}json\n{{}}\n{FENCE}<｜tool▁call▁end｜>",
    "DeepSeek, xorbitsai/xagent#806": '<｜｜DSML｜｜tool_calls> <｜｜DSML｜｜invoke name="add">',
    "Gemma, tinyhumansai/openhuman#6344": '<|tool_call>call:add{a:<|"|>2<|"|>}<tool_call|>',
    "FunctionGemma": "call:add{a:2}",
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}",
    "Kimi, can1357/oh-my-pi#8495": '<|open|>toolscall tool="add" index="1"<|sep|><|close|>call<|sep|>',
    "harmony": '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 2}<|call|>',
    "harmony without its tokens": 'commentary to=functions.add json{"a": 2}',
    "Llama": '<|python_tag|>{"name": "add", "parameters": {"a": 2}}',
    "Llama 3.1": '<function=add>{"a": 2, "b": 3}</function>',
    "Gemma, NousResearch/hermes-agent#12746": '<function name="add"><parameter name="a">2</parameter></function>',
    "Qwen 2.5 coder": f"<tools>{CALL}</tools>",
    "Qwen's agent": '✿FUNCTION✿: add\n✿ARGS✿: {"a": 2}',
    "Gemini in a tag": "<tool_code>\nprint(add(2, 3))\n</tool_code>",
    "Mistral": '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]',
    "Mistral without its beginning": 'add[ARGS]{"a": 2}',
    "Nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "Phi": f"functools[{CALL}]",
    "LongCat": "<longcat_tool_call>add</longcat_tool_call>",
    "escaped for HTML": HERMES.replace("<", "&lt;").replace(">", "&gt;"),
    "ReAct": 'Thought: I need to add.\nAction: add\nAction Input: {"a": 2}\nObservation: 5\nFinal Answer: 5',
    "a transcript": '[Called tool: add with arguments {"a": 2}]',
    "a tag named after a tool": "I read it.\n<read_file>\n<path>a.txt</path>\n</read_file>",
    "Python": "[add(a=2, b=3)]",
    "Python, two calls": 'add(a=2, b=(1))\nread_file(path="a).txt")',
    "Gemini": f"{FENCE}tool_code\nprint(default_api.add(a=2, b=3))\n{FENCE}",
    "Gemini without a fence": "tool_code\nprint(default_api.add(a=2))",
    "JSON": '{"name": "unheard_of", "arguments": {"a": 2, "b": 3}}',
    "JSON in a fence": f'{FENCE}json\n{{"name": "add", "parameters": {{"a": 2}}}}\n{FENCE}',
    "JSON in a fence after words": f"I call it:\n{FENCE}json\n{CALL}\n{FENCE}",
    "JSON after words": f"Okay.\n\n{CALL}",
    "JSON, an array": '[{"name": "add", "arguments": {}}, {"name": "now", "arguments": {}}]',
    "JSON, a line a call": f"{CALL}\n{CALL}",
    "JSON, broken": '{"name": "add", "arguments": {"a": "x',
    "JSON, OpenAI's form": '{"type": "function", "function": {"name": "add", "arguments": "{}"}}',
    "JSON, OpenAI's message": json.dumps({"tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}),
    "JSON, vercel/ai#2786": '{"tool_uses": [{"recipient_name": "functions.add", "parameters": {"a": 2}}]}',
    "JSON, Anthropic's form": '{"type": "tool_use", "name": "add", "input": {"a": 2}}',
    "JSON, LangChain's form": '{"action": "search", "action_input": "x"}',
}


@pytest.mark.parametrize("text", DIALECTS.values(), ids=DIALECTS)
def test_a_call_written_as_text_is_seen(text: str) -> None:
    assert call_as_text(text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "The sum is 5.",
        '{"total": 5, "currency": "EUR"}',
        '{"name": "Ada", "age": 36}',
        "[1, 2, 3]",
        f"Here is how a call looks:\n{FENCE}xml\n<tool_call>{{}}</tool_call>\n{FENCE}\nIt is only an example.",
        "Qwen wraps its calls in `<tool_call>` tags, which the server turns into the `tool_calls` of its reply. " * 3,
        "Use the <b>add</b> button.",
        "add(2, 3) returns 5 (an integer).",
        f"Call it so:\n{FENCE}python\nprint(add(2, 3))\n{FENCE}\nIt prints 5.",
        f'An order:\n{FENCE}json\n{{"name": "Ada", "input": 5}}\n{FENCE}',
        'multiply(a=2) and divide(b="x")',
        "<p>Nothing was added.</p>",
        "Action: the board approved it.\n\nInput came from all sides.",
        "if calls < tool_calls: wait",
    ],
)
def test_json_code_and_markup_that_are_answers_stay_answers(text: str) -> None:
    assert not call_as_text(text, TOOLS)


def test_where_json_is_wanted_it_is_a_call_only_of_a_tool_on_offer() -> None:
    assert call_as_text(CALL, TOOLS, json_wanted=True)
    assert not call_as_text('{"name": "Ada", "input": 5}', TOOLS, json_wanted=True)


@pytest.mark.parametrize("text", ["<" + "_" * 50_000, "\n" * 50_000 + "x", "add(" * 20_000, "<p>x</p>\n" * 20_000])
def test_long_texts_take_no_time(text: str) -> None:
    assert not call_as_text(text, TOOLS)
