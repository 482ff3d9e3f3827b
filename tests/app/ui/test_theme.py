import ast
import re
from pathlib import Path

import pytest

from app.ui.theme import DARK, LIGHT, TEXT_PAIRS, Tokens, contrast

UI = Path(__file__).parents[3] / "app" / "ui"
OWNERS = {"theme.py"}
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(")
PIXELS = re.compile(r"\b\d+\s*(px|pt)\b")
SIZED = re.compile(
    r"^(set(Fixed|Minimum|Maximum)(Width|Height|Size)|setContentsMargins|setSpacing|set(Horizontal|Vertical)Spacing"
    r"|setPixelSize|setPointSize|setPointSizeF|addSpacing|setIconSize|setHandleWidth)$"
)
MODULES = sorted(path for path in UI.rglob("*.py") if path.name not in OWNERS)


@pytest.mark.parametrize("tokens", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("pair", TEXT_PAIRS, ids=" on ".join)
def test_when_text_is_drawn_on_a_ground_then_its_contrast_is_enough(tokens: Tokens, pair: tuple[str, str]) -> None:
    text, ground = (getattr(tokens, name) for name in pair)
    assert contrast(text, ground) >= 4.5


def test_when_black_is_on_white_then_the_contrast_is_the_largest() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_when_every_module_is_read_then_colours_stand_only_in_the_theme() -> None:
    found = [
        f"{path.relative_to(UI)}:{node.lineno}: {node.value!r}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (COLOUR.search(node.value) or PIXELS.search(node.value))
        and not _is_docstring(node, path)
    ]
    assert not found


def test_when_every_module_is_read_then_sizes_are_named() -> None:
    found = [
        f"{path.relative_to(UI)}:{call.lineno}: {call.func.attr}"
        for path in MODULES
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and SIZED.match(call.func.attr)
        if any(isinstance(part, ast.Constant) and part.value not in (0, 0.0) for part in call.args)
    ]
    assert not found


def _is_docstring(node: ast.Constant, path: Path) -> bool:
    line = path.read_text(encoding="utf-8").splitlines()[node.lineno - 1].lstrip()
    return line.startswith(('"""', 'r"""'))
