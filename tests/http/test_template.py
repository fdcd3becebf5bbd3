"""The model's Jinja template: the dialect that model authors write for, and nothing beyond the sandbox."""

from __future__ import annotations

from datetime import datetime

import pytest

from batchserve.http.chat import ChatTemplate, Turn
from batchserve.http.errors import ApiError

TURNS = [Turn("system", "Be brief."), Turn("user", "Hello", name="Ada")]


def render(source: str | None) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(TURNS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[1].content }}{{ eos_token }}", "<s>Hello</s>"),
        ("{{ messages[1]['role'] + messages[1].name }}{{ messages[0].name is defined }}", "userAdaFalse"),
        ("{% if add_generation_prompt and not tools and documents is none %}yes{% endif %}", "yes"),
        ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "system"),
        (
            "{% for m in messages %}\n    {% if true %}\n{{ m.role }}\n    {% endif %}\n{% endfor %}",
            "system\nuser\n",
        ),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% generation %}{{ messages[0].role }}{% endgeneration %}!", "system!"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "2",
        ),
        ("{{ strftime_now('%Y') }}", str(datetime.now().year)),
    ],
)
def test_the_dialect(source: str, expected: str) -> None:
    assert render(source) == expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content.missing.attribute }}", "has no attribute 'missing'"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "unsafe"),
        ("{% include 'secrets.txt' %}", "no loader"),
        ("{{ nothing | tojson }}", "not JSON serializable"),
    ],
)
def test_what_fails_says_why(source: str, reason: str) -> None:
    with pytest.raises(ApiError, match="The model's chat template failed: ") as caught:
        render(source)
    assert reason in caught.value.message
    assert caught.value.param == "messages"


def test_without_a_template_turns_are_labelled() -> None:
    assert render(None) == "System: Be brief.\n\nUser: Hello\n\nAssistant:"


def test_a_template_that_does_not_compile_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert render("{% if %}") == render(None)
    assert "does not compile" in caplog.text
