"""The reason for the upper bound on PySide6 in pyproject.toml.

PySide6 6.12.0 on Python 3.11 loses one reference to None on every call that returns nothing, which ends in a
crash of the interpreter after some hours of use.
"""

import sys

from PySide6.QtCore import QObject


def test_when_void_qt_calls_repeat_then_none_keeps_its_references() -> None:
    subject = QObject()
    subject.setObjectName("warm")
    before = sys.getrefcount(None)
    for number in range(200):
        subject.setObjectName(f"name {number}")
    assert abs(sys.getrefcount(None) - before) < 50
