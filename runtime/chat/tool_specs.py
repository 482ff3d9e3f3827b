"""How families of models write tool calls: the specs that come with the program (`assets/response_specs/tools`)."""

from collections.abc import Iterable
from functools import cache

import msgspec

from runtime.chat.response import specs_folder
from runtime.chat.tool_format import ToolFormat, Trigger
from runtime.errors import StorageFault


class SampleCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that a sample makes."""

    name: str
    arguments: dict[str, object]


class ToolSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer (behind its thought) and what it is made of: the contract of a spec."""

    text: str
    content: str = ""
    calls: tuple[SampleCall, ...] = ()


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tool calls of some families.

    Attributes:
        name: the spec's name, that of its file.
        families: models known to answer so; for people.
        template_marks: the template of such a model contains all of these.
        other_marks: and none of these, which belong to another spec.
        form: how calls are written.
        samples: answers that a test cuts at every place.
    """

    name: str
    families: tuple[str, ...]
    template_marks: tuple[str, ...]
    form: ToolFormat
    samples: tuple[ToolSample, ...]
    other_marks: tuple[str, ...] = ()


PLAIN_FORM = ToolFormat(
    call_open='<tool_call>\n{"name": "',
    name_close='", "arguments": ',
    call_close="}\n</tool_call>",
    call_separator="\n",
    triggers=(Trigger("<tool_call>", '\n{"name": "'),),
)
"""For models that were not trained on a form of their own: the most common one, told in the system turn."""


@cache
def load_tool_specs() -> tuple[ToolSpec, ...]:
    """The specs that come with the program, by name.

    Raises:
        StorageFault: if the program's files are damaged or missing.
    """
    folder = specs_folder() / "tools"
    try:
        specs = tuple(msgspec.json.decode(file.read_bytes(), type=ToolSpec) for file in sorted(folder.glob("*.json")))
    except (OSError, msgspec.DecodeError) as error:
        raise StorageFault(f"A tool spec of the program cannot be read: {error}", path=str(folder)) from error
    if not specs:
        raise StorageFault("The program's tool specs are missing; install it anew.", path=str(folder))
    return specs


def choose_tool_spec(
    template_text: str, specs: Iterable[ToolSpec], special_texts: Iterable[str] = ()
) -> ToolSpec | None:
    """The spec for a model; `None` if there is none.

    Args:
        template_text: its chat template; what that mentions decides.
        specs: all there are.
        special_texts: its special tokens; a mark that begins a section decides where the template is silent.
    """
    specs = tuple(specs)
    for spec in specs:
        if all(mark in template_text for mark in spec.template_marks) and not any(
            mark in template_text for mark in spec.other_marks
        ):
            return spec
    known = frozenset(special_texts)
    by_token = (spec for spec in specs if any(trigger.text in known for trigger in spec.form.triggers))
    return next(by_token, None)
