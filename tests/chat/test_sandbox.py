import datetime
import time

import pytest

from runtime.chat import sandbox
from runtime.chat.sandbox import SandboxedTemplate, TemplateValue
from runtime.errors import TemplateRefused

NOW = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)


def render(template: str, **values: TemplateValue) -> str:
    return SandboxedTemplate(template).render(values, now=NOW, input_chars=100)


USUAL = [
    ("{% for m in messages %}\n  {{- m.content }}\n{% endfor %}\nend", "hi\nend"),
    ("{{ strftime_now('%d %b %Y') }}", "04 Mar 2026"),
    ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
    ("{{ {'a': [1]} | tojson(indent=1) }}", '{\n "a": [\n  1\n ]\n}'),
    ("{% generation %}x{% endgeneration %}y", "xy"),
    ("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
    ("{% set ns = namespace(n=1) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "4"),
    ("{% macro greet(who) %}hello {{ who }}{% endmacro %}{{ greet('you') }}", "hello you"),
    ("{% set x %}abc{% endset %}{% set y | upper %}abc{% endset %}{{ x ~ y }}", "abcABC"),
    ("{{ 'a,b'.split(',')[1] ~ '-' * 3 ~ '%03d' % 7 ~ '{}'.format(2) }}", "b---0072"),
    ("{{ messages | map(attribute='content') | join('+') }}", "hi"),
    ("{{ undefined_thing is defined }}{{ tools }}", "False"),
    ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
    ("{{ 'x' | center(5) | trim }}", "x"),
]


@pytest.mark.parametrize(("template", "expected"), USUAL)
def test_usual_template_when_rendered_then_says_what_transformers_says(template: str, expected: str) -> None:
    assert render(template, messages=[{"content": "hi"}], tools="") == expected


def test_usual_templates_when_rendered_by_transformers_then_are_the_same() -> None:
    oracle = pytest.importorskip("transformers.utils.chat_template_utils")
    for template, _ in USUAL:
        if "strftime_now" in template or "undefined" in template:
            continue
        theirs, _ = oracle.render_jinja_template([[{"content": "hi"}]], chat_template=template)
        assert [render(template, messages=[{"content": "hi"}])] == theirs


def test_template_that_raises_when_rendered_then_its_words_reach_the_caller() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate") as caught:
        render("{{ raise_exception('Conversation roles must alternate') }}")
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ lipsum(n=5) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    ],
)
def test_template_that_reaches_for_python_when_rendered_then_is_refused(template: str) -> None:
    with pytest.raises(TemplateRefused):
        render(template, messages=[])


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [1] * 10**9 }}",
        "{{ 9 ** 9999999 }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ 'a\\t'.expandtabs(10**9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'x' | center(10**9) }}",
        "{{ 'x' | indent(10**9, true) }}",
        "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set n = namespace(s='ab') %}{% for i in m %}{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ','.join([ns.s, ns.s]) %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}",
    ],
)
def test_template_that_grows_without_end_when_rendered_then_is_stopped_early(template: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateRefused):
        render(template, m=[0] * 60)
    assert time.monotonic() - started < sandbox.RENDER_LIMIT_S


@pytest.mark.parametrize(
    "template",
    [
        "{% set r = range(100000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(60) }}",
        "{% for a in m recursive %}{{ loop(m) }}{% endfor %}",
    ],
)
def test_template_that_never_ends_when_rendered_then_is_stopped(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "RENDER_LIMIT_S", 0.2)
    started = time.monotonic()
    with pytest.raises(TemplateRefused):
        render(template, m=[1, 2])
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "template",
    ["{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ nothing.at.all }}", "{{ messages[5].x }}", "{{ [3, 'a'] | sort }}"],
)
def test_template_with_a_mistake_when_rendered_then_is_refused_and_nothing_else(template: str) -> None:
    with pytest.raises(TemplateRefused):
        render(template, messages=[])


@pytest.mark.parametrize("template", ["{% for ", "{{ }", "{% endif %}", "{% unknown_tag %}"])
def test_template_that_does_not_compile_when_made_then_the_line_is_told(template: str) -> None:
    with pytest.raises(TemplateRefused, match="line 1"):
        SandboxedTemplate(template)


def test_huge_template_when_made_then_is_refused() -> None:
    with pytest.raises(TemplateRefused, match="too long"):
        SandboxedTemplate("x" * (sandbox.MAX_TEMPLATE_CHARS + 1))


def test_list_of_the_templates_own_when_changed_then_is_let_and_a_given_one_is_not() -> None:
    own = "{% set own = [] %}{% for m in messages %}{% set _ = own.append(m) %}{% endfor %}{{ own.pop(0) }}{{ own }}"
    assert render(own, messages=["a", "b"]) == "a['b']"
    for given in ("{{ messages.append('c') }}", "{{ messages[0].append('c') }}", "{{ more.x.append(1) }}"):
        with pytest.raises(TemplateRefused):
            render(given, messages=[["a"]], more={"x": []})


def test_list_that_grows_without_end_when_rendered_then_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_LIST", 50)
    with pytest.raises(TemplateRefused, match="endless list"):
        render("{% set own = [] %}{% for i in range(99) %}{% set _ = own.append(i) %}{% endfor %}")


def test_filter_that_gives_an_iterator_when_made_json_then_is_a_list() -> None:
    assert render("{{ messages | map(attribute='a') | tojson }}", messages=[{"a": 1}, {"a": 2}]) == "[1, 2]"
