"""Templates that mean harm: what they would need is refused before it is taken."""

import contextlib
import datetime
import time
import tracemalloc

import pytest

from runtime.chat import sandbox
from runtime.chat.sandbox import SandboxedTemplate, TemplateValue
from runtime.errors import TemplateRefused

NOW = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
LIMIT_CHARS = 100_000
PEAK_BYTES = 30_000_000
"""Each of the templates would take at least three times as much."""
BIG = "{% set b = 'a' * 90000 %}"


def render(template: str, **values: TemplateValue) -> str:
    return SandboxedTemplate(template).render(values, now=NOW, input_chars=100)


@pytest.mark.parametrize(
    "template",
    [
        BIG + "{{ " + " ~ ".join(["b"] * 2000) + " }}",
        BIG + "{% set x %}" + "{{ b }}" * 1200 + "{% endset %}",
        BIG + "{% macro m() %}" + "{{ b }}" * 1200 + "{% endmacro %}{{ m() }}",
        BIG + "{{ range(2000) | join(b) }}",
        BIG + "{{ b.join(range(2000) | map('string')) }}",
        "{% set b = 'a' * 9000 %}{{ range(12000) | map('string') | join(b) }}",
        BIG + "{{ ('x' * 2000) | replace('x', b) }}",
        BIG + "{{ ('x' * 2000).replace('x', b) }}",
        BIG + "{{ 'x'.join(['a'] * 90000).translate({97: b}) }}",
        BIG + "{{ ('{0}' * 2000).format(b) }}",
        BIG + "{{ ('{a}' * 2000).format(a=b) }}",
        BIG + "{{ ('{a}' * 2000).format_map({'a': b}) }}",
        BIG + "{{ ('%(a)s' * 2000) % {'a': b} }}",
        BIG + "{{ ('%(a)s' * 2000) | format(a=b) }}",
        BIG + "{{ ('\\n' * 2000) | indent(b, blank=true) }}",
        "{{ ('\\n' * 5000) | indent(90000, blank=true) }}",
        "{{ ([1] * 5000) | tojson(indent=90000) }}",
        BIG + "{{ ([1] * 5000) | tojson(indent=b) }}",
        BIG + "{{ ([1] * 5000) | tojson(separators=(b, b)) }}",
        BIG + "{% set l = [] %}{% for i in range(90000) %}{% set _ = l.append(b + i | string) %}{% endfor %}",
        BIG + "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = ns.l + [b ~ i] %}{% endfor %}",
        "{% set ns = namespace(x=9) %}{% for i in range(40) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{% set x = 9 ** 64 %}{% set x = x ** 64 %}{% set x = x ** 64 %}{% set x = x ** 64 %}{% set x = x ** 64 %}",
    ],
)
def test_template_that_would_take_much_memory_when_rendered_then_is_refused_before_it_is_taken(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "MAX_ADDED_CHARS", LIMIT_CHARS)
    monkeypatch.setattr(sandbox, "RENDER_LIMIT_S", 60.0)
    made = SandboxedTemplate(template)
    tracemalloc.start()
    try:
        with pytest.raises(TemplateRefused, match="was stopped"):
            made.render({}, now=NOW, input_chars=100)
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "template",
    [
        "{% set l = range(90000) | list %}" + "{% set _ = l | sort | sort %}" * 500,
        "{% set l = range(90000) | list %}" + "{% set _ = l | map('string') | list %}" * 500,
        "{% set l = range(90000) | list %}" + "{{ l.count(-1) }}" * 3_000,
        "{% set a = 'a' * 90000 %}" + "{% set _ = a.replace('a', 'b').replace('b', 'a').count('b') %}" * 3_000,
    ],
)
def test_template_that_takes_long_without_a_loop_when_rendered_then_is_stopped(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "RENDER_LIMIT_S", 0.2)
    made = SandboxedTemplate(template)
    began_at = time.process_time()
    with pytest.raises(TemplateRefused, match="was stopped"):
        made.render({}, now=NOW, input_chars=100)
    assert time.process_time() - began_at < 2


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in x %}" * 30 + "{% endfor %}" * 30,
        "{% if x %}" * 200 + "{% endif %}" * 200,
        "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
        "{{ " + "not " * 5000 + "1 }}",
        "{{ " + "1+" * 3000 + "1 }}",
        "{{ " + "[" * 500 + "]" * 500 + " }}",
        "{{ x" + ".a" * 3000 + " }}",
        "{{ x" + "|string" * 3000 + " }}",
        "{% macro m(" + ",".join(f"a{i}" for i in range(5000)) + ") %}{% endmacro %}",
        "{{ '\ud800' }}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as y %}",
        "\0{{ x }}",
    ],
)
def test_template_of_an_odd_shape_when_made_and_rendered_then_nothing_but_a_refusal(template: str) -> None:
    with contextlib.suppress(TemplateRefused):
        render(template, x="x")


def test_template_that_says_much_when_it_refuses_then_its_words_are_cut() -> None:
    with pytest.raises(TemplateRefused) as caught:
        render("{{ raise_exception('no ' * 1000000) }}")
    assert len(caught.value.message) < 3000
    with pytest.raises(TemplateRefused) as caught:
        render("{{ {}['k' * 1000000].x }}")
    assert len(caught.value.message) < 3000


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ range(3) | join(', ') }}{{ '-'.join(['a', 'b']) }}", "0, 1, 2a-b"),
        ("{{ 'abab' | replace('b', 'cc') }}{{ 'abab'.replace('b', '', 1) }}", "accaccaab"),
        ("{{ 'a\nb' | indent(2) }}{{ 'a\nb' | indent('> ', first=true) }}", "a\n  b> a\n> b"),
        ("{{ '%s/%s' | format('a', 'b') }}{{ '{} {x}'.format(1, x=2) }}{{ '%(a)s' % {'a': 5} }}", "a/b1 25"),
        ("{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}", '[1,{"a":2}]'),
        ("{{ 7 ** 3 * 2 % 5 }}{{ [1] + [2] }}{{ [0] * 3 }}", "1[1, 2][0, 0, 0]"),
    ],
)
def test_usual_work_when_bounded_then_is_what_it_was(template: str, expected: str) -> None:
    assert render(template) == expected


def test_long_text_that_is_put_together_turn_by_turn_when_rendered_then_is_let() -> None:
    template = "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m %}{% endfor %}{{ ns.t }}"
    messages: list[TemplateValue] = ["word " * 1000] * 200
    made = SandboxedTemplate(template)
    assert len(made.render({"messages": messages}, now=NOW, input_chars=1_000_000)) == 1_000_000
