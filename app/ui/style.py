"""Turns tokens into what Qt draws with: one palette and one stylesheet. No colour or size stands here by itself."""

from PySide6.QtGui import QColor, QPalette

from app.ui.icons import asset
from app.ui.theme import Size, Space, Tokens, Type


def build_palette(tokens: Tokens) -> QPalette:
    """The palette for native parts (dialogs, text cursors) that no stylesheet rule reaches."""
    palette = QPalette()
    role = QPalette.ColorRole
    for target, colour in (
        (role.Window, tokens.panel),
        (role.WindowText, tokens.text),
        (role.Base, tokens.surface),
        (role.AlternateBase, tokens.panel),
        (role.Text, tokens.text),
        (role.Button, tokens.raised),
        (role.ButtonText, tokens.text),
        (role.BrightText, tokens.red),
        (role.ToolTipBase, tokens.tooltip),
        (role.ToolTipText, tokens.on_tooltip),
        (role.PlaceholderText, tokens.text_muted),
        (role.Highlight, tokens.selection),
        (role.HighlightedText, tokens.on_selection),
        (role.Link, tokens.link),
        (role.LinkVisited, tokens.link),
        (role.Light, tokens.raised),
        (role.Midlight, tokens.hover),
        (role.Mid, tokens.line_strong),
        (role.Dark, tokens.line_strong),
        (role.Shadow, tokens.shadow),
        (role.Accent, tokens.accent),
    ):
        palette.setColor(target, QColor(colour))
    for target in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, target, QColor(tokens.text_disabled))
    return palette


def build_stylesheet(t: Tokens) -> str:
    """The stylesheet. Variants are chosen by dynamic properties: `kind` (buttons), `tone` (labels), `role` (frames)."""
    return "\n".join((_frames(t), _labels(t), _buttons(t), _fields(t), _lists(t), _bars(t), _menus(t)))


def _frames(t: Tokens) -> str:
    line = f"{Size.LINE}px solid {t.line}"
    return f"""
    QMainWindow, QDialog {{ background: {t.panel}; }}
    QWidget[role="frame"] {{ background: {t.frame}; }}
    QWidget[role="rail"] {{ background: {t.frame}; border: none; border-right: {line}; }}
    QWidget[role="bar"] {{ background: {t.frame}; border: none; border-top: {line}; }}
    QWidget[role="panel"] {{ background: {t.panel}; }}
    QWidget[role="side"] {{ background: {t.panel}; border: none; border-right: {line}; }}
    QWidget[role="inspector"] {{ background: {t.panel}; border: none; border-left: {line}; }}
    QWidget[role="surface"], QStackedWidget[role="surface"] {{ background: {t.surface}; }}
    QFrame[role="head"] {{ background: {t.surface}; border: none; border-bottom: {line}; }}
    QFrame[role="card"] {{ background: {t.raised}; border: {line}; border-radius: {Size.RADIUS_L}px; }}
    QFrame[role="quiet-card"] {{ background: {t.panel}; border: {line}; border-radius: {Size.RADIUS_L}px; }}
    QFrame[role="code-card"] {{ background: {t.code}; border: {line}; border-radius: {Size.RADIUS}px; }}
    QFrame[role="composer"] {{ background: {t.raised}; border: {Size.LINE}px solid {t.line_strong};
        border-radius: {Size.RADIUS_XL}px; }}
    QFrame[role="composer"][focused="true"] {{ border-color: {t.accent}; }}
    QFrame[role="error"] {{ background: {t.red_soft}; border: none; border-radius: {Size.RADIUS}px; }}
    QFrame[role="warning"] {{ background: {t.amber_soft}; border: none; border-radius: {Size.RADIUS}px; }}
    QFrame[role="note"] {{ background: {t.accent_soft}; border: none; border-radius: {Size.RADIUS}px; }}
    QFrame[role="banner"] {{ background: {t.amber_soft}; border: none; border-bottom: {line}; }}
    QFrame[role="toast"] {{ background: {t.tooltip}; border: none; border-radius: {Size.RADIUS}px; }}
    QFrame[role="popup"] {{ background: {t.raised}; border: {Size.LINE}px solid {t.line_strong};
        border-radius: {Size.RADIUS_L}px; }}
    QFrame[role="row"] {{ background: transparent; border: none; border-top: {line}; }}
    QFrame[role="row"]:hover {{ background: {t.panel}; }}
    QFrame[role="row"][chosen="true"] {{ background: {t.panel}; }}
    QFrame[role="pick"] {{ background: {t.raised}; border: {line}; border-radius: {Size.RADIUS_L}px; }}
    QFrame[role="pick"]:hover {{ border-color: {t.line_strong}; background: {t.panel}; }}
    QFrame[role="pick"][focused="true"] {{ border: {Size.FOCUS}px solid {t.accent}; }}
    QFrame[role="separator"] {{ background: {t.line}; border: none; max-height: {Size.LINE}px;
        min-height: {Size.LINE}px; }}
    QScrollArea, QScrollArea > QWidget > QWidget[role="scrolled"] {{ background: transparent; border: none; }}
    QSplitter::handle {{ background: transparent; }}
    QToolTip {{ background: {t.tooltip}; color: {t.on_tooltip}; border: none; padding: {Space.HAIR}px {Space.XS}px; }}
    """


def _labels(t: Tokens) -> str:
    return f"""
    QLabel {{ background: transparent; color: {t.text}; }}
    QLabel:disabled {{ color: {t.text_disabled}; }}
    QLabel[tone="muted"] {{ color: {t.text_muted}; }}
    QLabel[tone="small"] {{ color: {t.text_muted}; font-size: {Type.SMALL}px; }}
    QLabel[tone="strong"] {{ font-weight: 600; }}
    QLabel[tone="read"] {{ font-size: {Type.READ}px; }}
    QLabel[tone="group"] {{ color: {t.text_muted}; font-size: {Type.SMALL}px; font-weight: 600; }}
    QLabel[tone="title"] {{ font-size: {Type.TITLE}px; font-weight: 600; }}
    QLabel[tone="display"] {{ font-size: {Type.DISPLAY}px; font-weight: 600; }}
    QLabel[tone="ok"] {{ color: {t.ok}; }}
    QLabel[tone="warn"] {{ color: {t.warn}; }}
    QLabel[tone="bad"] {{ color: {t.red}; }}
    QLabel[tone="heading"] {{ font-size: {Type.READ}px; font-weight: 600; }}
    QLabel[tone="tag"] {{ background: {t.hover}; color: {t.text_muted}; border-radius: {Size.RADIUS_S}px;
        font-size: {Type.SMALL}px; padding: 0 {Space.HAIR}px; }}
    QLabel[tone="tag-amber"] {{ background: {t.amber_soft}; color: {t.on_amber_soft};
        border-radius: {Size.RADIUS_S}px; font-size: {Type.SMALL}px; padding: 0 {Space.HAIR}px; }}
    QLabel[tone="tag-accent"] {{ background: {t.accent_soft}; color: {t.on_accent_soft};
        border-radius: {Size.RADIUS_S}px; font-size: {Type.SMALL}px; padding: 0 {Space.HAIR}px; }}
    QFrame[role="error"] QLabel {{ color: {t.on_red_soft}; }}
    QFrame[role="warning"] QLabel, QFrame[role="banner"] QLabel {{ color: {t.on_amber_soft}; }}
    QFrame[role="note"] QLabel {{ color: {t.on_accent_soft}; }}
    QFrame[role="toast"] QLabel {{ color: {t.on_tooltip}; }}
    """


def _buttons(t: Tokens) -> str:
    pad = f"{Space.HAIR}px {Space.S}px"
    tick = asset("icons", "rendered", "tick.svg").as_posix()
    return f"""
    QPushButton {{ background: {t.raised}; color: {t.text}; border: {Size.LINE}px solid {t.line_strong};
        border-radius: {Size.RADIUS}px; padding: {pad}; min-height: {Size.CONTROL_SMALL_H}px; }}
    QPushButton:hover {{ background: {t.hover}; }}
    QPushButton:pressed {{ background: {t.pressed}; }}
    QPushButton:focus {{ border: {Size.FOCUS}px solid {t.accent}; }}
    QPushButton:disabled {{ color: {t.text_disabled}; border-color: {t.line}; background: {t.panel}; }}
    QPushButton[kind="primary"] {{ background: {t.accent}; color: {t.on_accent}; border-color: {t.accent};
        font-weight: 600; }}
    QPushButton[kind="primary"]:hover {{ background: {t.accent_hover}; }}
    QPushButton[kind="primary"]:pressed {{ background: {t.accent_pressed}; }}
    QPushButton[kind="primary"]:focus {{ border: {Size.FOCUS}px solid {t.text}; }}
    QPushButton[kind="primary"]:disabled {{ background: {t.pressed}; color: {t.text_disabled};
        border-color: {t.pressed}; }}
    QPushButton[kind="quiet"] {{ background: transparent; border-color: transparent; }}
    QPushButton[kind="quiet"]:hover {{ background: {t.hover}; }}
    QPushButton[kind="quiet"]:focus {{ border: {Size.FOCUS}px solid {t.accent}; }}
    QPushButton[kind="quiet"]:checked {{ background: {t.selected}; font-weight: 600; }}
    QPushButton[kind="suggestion"] {{ text-align: left; background: {t.raised};
        border: {Size.LINE}px solid {t.line}; border-radius: {Size.RADIUS_L}px; padding: {Space.S}px {Space.M}px; }}
    QPushButton[kind="suggestion"]:hover {{ border-color: {t.line_strong}; background: {t.hover}; }}
    QPushButton[kind="suggestion"]:focus {{ border: {Size.FOCUS}px solid {t.accent}; }}
    QPushButton[kind="picker"] {{ background: transparent; border: {Size.LINE}px solid {t.line}; text-align: left;
        font-weight: 600; }}
    QPushButton[kind="picker"]:hover {{ background: {t.hover}; }}
    QPushButton[kind="picker"]:focus {{ border: {Size.FOCUS}px solid {t.accent}; }}
    QFrame[role="toast"] QPushButton {{ background: transparent; color: {t.on_tooltip};
        border: {Size.LINE}px solid {t.text_muted}; }}
    QFrame[role="error"] QPushButton, QFrame[role="banner"] QPushButton, QFrame[role="warning"] QPushButton {{
        background: {t.raised}; color: {t.text}; border: {Size.LINE}px solid {t.line_strong}; }}
    QPushButton[kind="pill"] {{ background: {t.raised}; border: {Size.LINE}px solid {t.line_strong};
        border-radius: {Size.PILL_H // 2}px; padding: 0 {Space.M}px; min-height: {Size.PILL_H - 2 * Size.LINE}px; }}
    QPushButton[kind="pill"]:hover {{ background: {t.hover}; }}
    QPushButton[kind="round"] {{ background: {t.accent}; border: none; padding: 0;
        border-radius: {Size.CONTROL_H // 2}px; min-width: {Size.CONTROL_H}px; max-width: {Size.CONTROL_H}px;
        min-height: {Size.CONTROL_H}px; max-height: {Size.CONTROL_H}px; }}
    QPushButton[kind="round"]:hover {{ background: {t.accent_hover}; }}
    QPushButton[kind="round"]:pressed {{ background: {t.accent_pressed}; }}
    QPushButton[kind="round"]:focus {{ border: {Size.FOCUS}px solid {t.text}; }}
    QPushButton[kind="round"]:disabled {{ background: {t.pressed}; }}

    QToolButton {{ background: transparent; color: {t.text_muted}; border: {Size.FOCUS}px solid transparent;
        border-radius: {Size.RADIUS}px; padding: {Space.HAIR - Size.LINE}px; }}
    QToolButton:hover {{ background: {t.hover}; color: {t.text}; }}
    QToolButton:pressed {{ background: {t.pressed}; }}
    QToolButton:focus {{ border-color: {t.accent}; }}
    QToolButton:checked {{ background: {t.selected}; color: {t.text}; }}
    QToolButton:disabled {{ color: {t.text_disabled}; }}
    QToolButton::menu-indicator {{ image: none; width: 0; }}
    QToolButton[kind="fold"] {{ color: {t.text_muted}; padding: {Space.HAIR}px {Space.XS}px; }}
    QToolButton[kind="row"] {{ color: {t.text}; text-align: left; padding: {Space.HAIR}px {Space.XS}px; }}
    QToolButton[kind="bar"] {{ font-size: {Type.SMALL}px; border-radius: {Size.RADIUS_S}px;
        border-width: {Size.LINE}px; padding: 0 {Space.HAIR}px; }}

    QToolButton[kind="chip"] {{ color: {t.text_muted}; font-size: {Type.SMALL}px; border-radius: {Size.RADIUS_S}px;
        border: {Size.LINE}px solid transparent; padding: 0 {Space.HAIR}px; }}
    QToolButton[kind="chip"]:hover {{ color: {t.text}; background: {t.hover}; }}
    QToolButton[kind="chip"]:focus {{ border-color: {t.accent}; }}
    QToolButton[kind="chip"][tone="amber"] {{ background: {t.amber_soft}; color: {t.on_amber_soft}; }}
    QToolButton[kind="chip"][tone="red"] {{ background: {t.red_soft}; color: {t.on_red_soft}; }}
    QToolButton[kind="rail"] {{ color: {t.text_muted}; font-size: {Type.SMALL}px; border-radius: {Size.RADIUS}px;
        padding: {Space.HAIR}px 0; }}
    QToolButton[kind="rail"]:checked {{ background: {t.selected}; color: {t.text}; font-weight: 600; }}

    QCheckBox {{ color: {t.text}; spacing: {Space.XS}px; }}
    QCheckBox:disabled {{ color: {t.text_disabled}; }}
    QCheckBox::indicator {{ width: {Space.S + Size.FOCUS}px; height: {Space.S + Size.FOCUS}px;
        border: {Size.LINE}px solid {t.line_strong}; border-radius: {Size.RADIUS_S}px; background: {t.surface}; }}
    QCheckBox::indicator:hover, QCheckBox::indicator:focus {{ border-color: {t.accent}; }}
    QCheckBox::indicator:checked {{ background: {t.accent}; border-color: {t.accent}; image: url("{tick}"); }}
    QCheckBox::indicator:checked:disabled {{ background: {t.line_strong}; border-color: {t.line_strong}; }}
    QCheckBox:focus, QRadioButton:focus {{ text-decoration: underline; }}
    QRadioButton {{ color: {t.text}; spacing: {Space.XS}px; }}
    QRadioButton:disabled {{ color: {t.text_disabled}; }}
    QRadioButton::indicator {{ width: {Space.S}px; height: {Space.S}px; background: {t.surface};
        border: {Size.LINE}px solid {t.line_strong}; border-radius: {(Space.S + 2 * Size.LINE) // 2}px; }}
    QRadioButton::indicator:hover, QRadioButton::indicator:focus {{ border-color: {t.accent}; }}
    QRadioButton::indicator:checked {{ background: {t.surface}; width: {Space.HAIR}px; height: {Space.HAIR}px;
        border: {Space.HAIR + Size.LINE}px solid {t.accent}; }}
    """


def _fields(t: Tokens) -> str:
    down = asset("icons", "rendered", f"arrow-{'dark' if t.dark else 'light'}.svg").as_posix()
    up = asset("icons", "rendered", f"arrow-up-{'dark' if t.dark else 'light'}.svg").as_posix()
    return f"""
    QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox, QPlainTextEdit[kind="field"] {{ background: {t.surface};
        color: {t.text}; border: {Size.LINE}px solid {t.line_strong}; border-radius: {Size.RADIUS}px;
        padding: {Space.HAIR}px {Space.XS}px; selection-background-color: {t.selection};
        selection-color: {t.on_selection}; }}
    QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox {{ min-height: {Size.CONTROL_SMALL_H - 2 * Size.LINE}px; }}
    QLineEdit:hover, QSpinBox:hover, QDoubleSpinBox:hover, QComboBox:hover {{ border-color: {t.text_disabled}; }}
    QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus, QPlainTextEdit[kind="field"]:focus {{
        border-color: {t.accent}; }}
    QLineEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled {{
        color: {t.text_disabled}; background: {t.panel}; border-color: {t.line}; }}
    QLineEdit[kind="plain"], QPlainTextEdit[kind="plain"] {{ background: transparent; border: none; padding: 0;
        color: {t.text}; selection-background-color: {t.selection}; selection-color: {t.on_selection}; }}
    QPlainTextEdit[kind="code"] {{ background: {t.code}; color: {t.text}; border: {Size.LINE}px solid {t.line};
        border-radius: {Size.RADIUS}px; padding: 0; selection-background-color: {t.selection};
        selection-color: {t.on_selection}; }}
    QPlainTextEdit[kind="code"]:focus {{ border-color: {t.accent}; }}
    QPlainTextEdit[kind="plain"] {{ font-size: {Type.READ}px; }}
    QLineEdit[kind="palette"] {{ background: transparent; border: none; font-size: {Type.READ}px;
        padding: {Space.XS}px; }}
    QSpinBox, QDoubleSpinBox {{ padding-right: {Space.M}px; }}
    QSpinBox::up-button, QDoubleSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::down-button {{
        border: none; background: transparent; width: {Space.M}px; subcontrol-origin: border; }}
    QSpinBox::up-button, QDoubleSpinBox::up-button {{ subcontrol-position: top right; }}
    QSpinBox::down-button, QDoubleSpinBox::down-button {{ subcontrol-position: bottom right; }}
    QSpinBox::up-arrow, QDoubleSpinBox::up-arrow {{ image: url("{up}"); width: {Size.DOT}px; height: {Size.DOT}px; }}
    QSpinBox::down-arrow, QDoubleSpinBox::down-arrow {{ image: url("{down}"); width: {Size.DOT}px;
        height: {Size.DOT}px; }}
    QComboBox::drop-down {{ border: none; width: {Space.L}px; }}
    QComboBox::down-arrow {{ image: url("{down}"); width: {Space.S}px; height: {Space.S}px; }}
    QComboBox QAbstractItemView {{ background: {t.raised}; border: {Size.LINE}px solid {t.line_strong};
        color: {t.text}; selection-background-color: {t.selected}; selection-color: {t.text};
        padding: {Space.HAIR}px; outline: none; }}
    QSlider::groove:horizontal {{ height: {Space.HAIR}px; border-radius: {Space.HAIR // 2}px;
        background: {t.line_strong}; }}
    QSlider::sub-page:horizontal {{ background: {t.accent}; border-radius: {Space.HAIR // 2}px; }}
    QSlider::handle:horizontal {{ background: {t.raised}; border: {Size.FOCUS}px solid {t.accent};
        width: {Space.S - Size.FOCUS}px; height: {Space.S - Size.FOCUS}px; margin: -{Space.HAIR + Size.LINE}px 0;
        border-radius: {Space.S // 2}px; }}
    QSlider::handle:horizontal:focus {{ background: {t.accent}; }}
    QSlider::sub-page:horizontal:disabled, QSlider::groove:horizontal:disabled {{ background: {t.line}; }}
    QSlider::handle:horizontal:disabled {{ border-color: {t.line_strong}; }}
    """


def _lists(t: Tokens) -> str:
    return f"""
    QListView, QTreeView, QTableView {{ background: transparent; border: none; outline: none; color: {t.text}; }}
    QListView[kind="palette"]::item {{ border-radius: {Size.RADIUS_S}px; }}
    QListView[kind="palette"]::item:selected {{ background: {t.selected}; color: {t.text}; }}
    QListView[kind="palette"]::item:hover {{ background: {t.hover}; }}
    QTableView {{ gridline-color: {t.line}; selection-background-color: {t.selected}; selection-color: {t.text}; }}
    QTableView[kind="live"]::item {{ padding: 0 {Space.HAIR}px; border: none; }}
    QTableView[kind="live"]::item:selected {{ background: {t.selected}; color: {t.text}; }}
    QHeaderView::section {{ background: {t.panel}; color: {t.text_muted}; border: none;
        border-bottom: {Size.LINE}px solid {t.line}; padding: {Space.HAIR}px {Space.XS}px;
        font-size: {Type.SMALL}px; }}
    QScrollBar:vertical {{ background: transparent; width: {Size.SCROLLBAR}px; margin: 0; }}
    QScrollBar:horizontal {{ background: transparent; height: {Size.SCROLLBAR}px; margin: 0; }}
    QScrollBar::handle {{ background: {t.line_strong}; border-radius: {Space.HAIR - Size.LINE}px;
        margin: {Size.FOCUS}px; }}
    QScrollBar::handle:vertical {{ min-height: {Size.SCROLLBAR_THUMB_MIN}px; }}
    QScrollBar::handle:horizontal {{ min-width: {Size.SCROLLBAR_THUMB_MIN}px; }}
    QScrollBar::handle:hover {{ background: {t.text_disabled}; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
    QAbstractScrollArea::corner {{ background: transparent; border: none; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    """


def _bars(t: Tokens) -> str:
    return f"""
    QProgressBar {{ background: {t.line}; border: none; border-radius: {Size.PROGRESS_H // 2}px;
        max-height: {Size.PROGRESS_H}px; min-height: {Size.PROGRESS_H}px; }}
    QProgressBar::chunk {{ background: {t.accent}; border-radius: {Size.PROGRESS_H // 2}px; }}
    """


def _menus(t: Tokens) -> str:
    return f"""
    QMenu {{ background: {t.raised}; color: {t.text}; border: {Size.LINE}px solid {t.line_strong};
        border-radius: {Size.RADIUS}px; padding: {Space.HAIR}px; min-width: {Size.MENU_MIN_W}px; }}
    QMenu::item {{ padding: {Space.HAIR + Size.LINE}px {Space.L}px {Space.HAIR + Size.LINE}px {Space.S}px;
        border-radius: {Size.RADIUS_S}px; }}
    QMenu::item:selected {{ background: {t.selected}; }}
    QMenu::item:disabled {{ color: {t.text_disabled}; }}
    QMenu::separator {{ height: {Size.LINE}px; background: {t.line}; margin: {Space.HAIR}px {Space.XS}px; }}
    QMenu::icon {{ padding-left: {Space.XS}px; }}
    QMenuBar {{ background: {t.frame}; color: {t.text}; border: none; }}
    QMenuBar::item {{ background: transparent; padding: {Space.HAIR}px {Space.XS}px;
        border-radius: {Size.RADIUS_S}px; }}
    QMenuBar::item:selected {{ background: {t.hover}; }}
    """
