"""What a model wrote as arguments, as it is sent back."""

from __future__ import annotations

import pytest

from glassloop.core.encoding import loads
from glassloop.models.replay import arguments_object, arguments_text

READ = {
    '{"a": 2}': {"a": 2},
    "": {},
    "null": {},
    "[]": {},
    '"{\\"a\\": 2}"': {"a": 2},
    "{'a': True}": {"a": True},
    '{"a": 2,}': {"a": 2},
    '{"a": 2}<|im_end|>': {"a": 2},
}
"""Arguments that the validation gate reads. Public: local-inference-lab/vllm#684, MoonshotAI/kimi-cli#2165."""

UNREADABLE = ['{"a": "half', '{"a": 1}{"a": 2}', "5", "[1]", "{a}"]


@pytest.mark.parametrize(("raw", "meant"), READ.items())
def test_arguments_are_sent_back_as_they_were_read(raw: str, meant: object) -> None:
    assert arguments_object(raw) == meant
    assert loads(arguments_text(raw)) == meant


@pytest.mark.parametrize("raw", UNREADABLE)
def test_what_could_not_be_read_is_sent_back_as_a_fault(raw: str) -> None:
    assert arguments_object(raw) == {"_invalid_arguments": raw}
    assert loads(arguments_text(raw)) == {"_invalid_arguments": raw}


def test_an_object_is_sent_back_to_the_letter() -> None:
    assert arguments_text('{ "b":1,"a" : 2.0 }') == '{ "b":1,"a" : 2.0 }'
