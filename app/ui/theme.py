"""The one place of colours, spacings, type sizes and measures. Everything else in `app.ui` names them.

Colours are tokens with a meaning ("text_muted on surface"), one set for light and one for dark. `TEXT_PAIRS` lists
every pair of tokens that text is drawn with; a test holds each at a contrast of 4.5:1 or more (WCAG 2.2, 1.4.3).
"""

from dataclasses import dataclass, fields
from typing import Final, Literal

ThemeChoice = Literal["system", "light", "dark"]


class Space:
    """Distances in device-independent pixels. `HAIR` is the inside of small controls."""

    HAIR: Final = 4
    XS: Final = 8
    S: Final = 12
    M: Final = 16
    L: Final = 24
    XL: Final = 32
    NONE: Final = 0


class Type:
    """Type sizes in device-independent pixels, and the weights used."""

    SMALL: Final = 12
    BODY: Final = 13
    READ: Final = 15
    TITLE: Final = 20
    DISPLAY: Final = 28
    LINE_READ_PERCENT: Final = 135
    LINE_CODE_PERCENT: Final = 140


class Size:
    """Fixed measures in device-independent pixels."""

    WINDOW_W: Final = 1280
    WINDOW_H: Final = 800
    WINDOW_MIN_W: Final = 720
    WINDOW_MIN_H: Final = 480
    NARROW_W: Final = 1040
    RAIL_W: Final = 76
    RAIL_ITEM_H: Final = 60
    SIDE_W: Final = 260
    SIDE_MIN_W: Final = 200
    INSPECTOR_W: Final = 300
    INSPECTOR_MIN_W: Final = 260
    TRANSCRIPT_MAX_W: Final = 760
    PAGE_MAX_W: Final = 960
    TRANSCRIPT_MIN_W: Final = 240
    BUBBLE_MAX_PERCENT: Final = 82
    BAR_H: Final = 32
    TOOLBAR_H: Final = 52
    CONTROL_H: Final = 32
    CONTROL_SMALL_H: Final = 24
    ROW_H: Final = 40
    ROW_TALL_H: Final = 56
    ICON: Final = 16
    ICON_L: Final = 20
    ICON_XL: Final = 48
    RADIUS_S: Final = 4
    RADIUS: Final = 8
    RADIUS_L: Final = 12
    RADIUS_XL: Final = 16
    LINE: Final = 1
    FOCUS: Final = 2
    QUOTE_BAR: Final = 3
    INDENT: Final = 24
    SPARK_W: Final = 84
    SPARK_H: Final = 18
    RING: Final = 18
    SWITCH_W: Final = 36
    SWITCH_H: Final = 20
    SWITCH_BIG_W: Final = 56
    SWITCH_BIG_H: Final = 30
    CHART_H: Final = 64
    SCROLLBAR: Final = 10
    SCROLLBAR_THUMB_MIN: Final = 36
    PALETTE_W: Final = 560
    PALETTE_H: Final = 380
    PILL_H: Final = 34
    TOAST_W: Final = 420
    MENU_MIN_W: Final = 180
    DOT: Final = 8
    CARD_MIN_W: Final = 280
    FIELD_W: Final = 220
    FIELD_SMALL_W: Final = 84
    MESSAGE_MAX_W: Final = 420
    TABLE_CELL: Final = 8
    TABLE_COLUMN_MIN: Final = 64
    CODE_HEADER_H: Final = 34
    PROGRESS_H: Final = 4
    POPUP_H: Final = 360
    SHADOW: Final = 18
    STACK_H: Final = 20
    SWATCH: Final = 10
    METER_STEP_W: Final = 10
    METER_H: Final = 6
    QUANT_W: Final = 148
    QUALITY_W: Final = 190
    BUTTON_W: Final = 104
    NUMBER_W: Final = 100
    CHOICE_W: Final = 330
    DIALOG_W: Final = 520
    LABEL_W: Final = 168
    EMPTY_MAX_W: Final = 440
    TRAY_TILE_W: Final = 112
    PICTURE_W: Final = 360
    PICTURE_H: Final = 280
    PICTURE_SMALL_W: Final = 176
    PICTURE_SMALL_H: Final = 132


@dataclass(frozen=True, slots=True)
class Tokens:
    """Colour tokens of one appearance, as `#rrggbb`."""

    dark: bool
    # surfaces, from the frame inwards
    frame: str
    panel: str
    surface: str
    raised: str
    bubble: str
    code: str
    code_head: str
    hover: str
    pressed: str
    selected: str
    line: str
    line_strong: str
    # text
    text: str
    text_muted: str
    text_disabled: str
    link: str
    # accent and states
    accent: str
    accent_hover: str
    accent_pressed: str
    on_accent: str
    accent_soft: str
    on_accent_soft: str
    ok: str
    warn: str
    amber: str
    amber_soft: str
    on_amber_soft: str
    red: str
    red_soft: str
    on_red_soft: str
    selection: str
    on_selection: str
    inline_code: str
    tooltip: str
    on_tooltip: str
    shadow: str
    # code highlighting, all on `code`
    syntax_keyword: str
    syntax_string: str
    syntax_number: str
    syntax_comment: str
    syntax_name: str
    syntax_type: str
    syntax_operator: str
    syntax_error: str
    # chart series
    series_a: str
    series_b: str
    series_c: str
    series_d: str
    series_e: str


LIGHT = Tokens(
    dark=False,
    frame="#eeeff2",
    panel="#f6f7f9",
    surface="#ffffff",
    raised="#ffffff",
    bubble="#eef0f4",
    code="#f7f8fa",
    code_head="#eef0f3",
    hover="#e6e8ed",
    pressed="#dcdfe6",
    selected="#e2e6f8",
    line="#e1e4ea",
    line_strong="#c5cad4",
    text="#1a1c21",
    text_muted="#585e6a",
    text_disabled="#8d94a1",
    link="#3347c4",
    accent="#4458dc",
    accent_hover="#384bc9",
    accent_pressed="#2e3fb0",
    on_accent="#ffffff",
    accent_soft="#e7eafc",
    on_accent_soft="#2f41b5",
    ok="#1f7a4d",
    warn="#8a5200",
    amber="#b26a00",
    amber_soft="#fdf0d5",
    on_amber_soft="#7a4700",
    red="#c22f3d",
    red_soft="#fdeaec",
    on_red_soft="#9c1f2d",
    selection="#c9d2fb",
    on_selection="#14161c",
    inline_code="#eceef2",
    tooltip="#24262c",
    on_tooltip="#f2f3f5",
    shadow="#1a1c21",
    syntax_keyword="#8a2aa8",
    syntax_string="#1f6f43",
    syntax_number="#9a4a00",
    syntax_comment="#626a78",
    syntax_name="#2548b8",
    syntax_type="#00687a",
    syntax_operator="#4b5160",
    syntax_error="#b3261e",
    series_a="#4458dc",
    series_b="#0f8a7e",
    series_c="#b26a00",
    series_d="#a33b8f",
    series_e="#6b7280",
)

DARK = Tokens(
    dark=True,
    frame="#121317",
    panel="#17181d",
    surface="#1b1d22",
    raised="#24262d",
    bubble="#2a2d36",
    code="#14161a",
    code_head="#20232a",
    hover="#2a2d35",
    pressed="#343843",
    selected="#2b3150",
    line="#2c2f37",
    line_strong="#454a57",
    text="#eceef2",
    text_muted="#a5abb8",
    text_disabled="#6f7684",
    link="#9db0ff",
    accent="#4f63e6",
    accent_hover="#566aea",
    accent_pressed="#4356d2",
    on_accent="#ffffff",
    accent_soft="#272d4a",
    on_accent_soft="#b9c5ff",
    ok="#5cc98f",
    warn="#e8a33d",
    amber="#e8a33d",
    amber_soft="#3a2d15",
    on_amber_soft="#f4c377",
    red="#f0717c",
    red_soft="#3d2024",
    on_red_soft="#f7a9b0",
    selection="#3a4a9a",
    on_selection="#ffffff",
    inline_code="#2b2e36",
    tooltip="#e9ebef",
    on_tooltip="#1a1c21",
    shadow="#000000",
    syntax_keyword="#d19af0",
    syntax_string="#8fd3a4",
    syntax_number="#f0b072",
    syntax_comment="#8b93a3",
    syntax_name="#8fb4ff",
    syntax_type="#6fd0dd",
    syntax_operator="#b4bac6",
    syntax_error="#ff8a80",
    series_a="#7d8ff8",
    series_b="#4cc4b6",
    series_c="#e8a33d",
    series_d="#e08bd0",
    series_e="#8f97a6",
)

TEXT_PAIRS: Final[tuple[tuple[str, str], ...]] = (
    *((text, ground) for text in ("text", "text_muted") for ground in ("frame", "panel", "surface", "raised")),
    *((text, ground) for text in ("text", "text_muted") for ground in ("bubble", "hover", "selected", "code_head")),
    ("text", "pressed"),
    ("text", "code"),
    ("text", "inline_code"),
    ("link", "surface"),
    ("link", "bubble"),
    ("link", "panel"),
    ("on_accent", "accent"),
    ("on_accent", "accent_hover"),
    ("on_accent", "accent_pressed"),
    ("on_accent_soft", "accent_soft"),
    ("on_amber_soft", "amber_soft"),
    ("on_red_soft", "red_soft"),
    ("ok", "surface"),
    ("ok", "raised"),
    ("warn", "surface"),
    ("warn", "raised"),
    ("red", "surface"),
    ("red", "raised"),
    ("on_selection", "selection"),
    ("on_tooltip", "tooltip"),
    *((field.name, "code") for field in fields(Tokens) if field.name.startswith("syntax_")),
)
"""(text token, ground token) for every combination in which text is drawn."""


def tokens_for(dark: bool) -> Tokens:
    """The tokens of an appearance."""
    return DARK if dark else LIGHT


def _channel(value: int) -> float:
    part = value / 255
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4  # noqa: PLR2004 - the sRGB curve


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, 0..1 (WCAG 2.2 definition)."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.2126 * _channel(red) + 0.7152 * _channel(green) + 0.0722 * _channel(blue)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1..21 (WCAG 2.2 definition)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
