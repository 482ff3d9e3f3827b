"""Surroundings of every test: Qt without a screen, no proxy, hypothesis without a clock."""

import os

from hypothesis import settings

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
for _name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(_name, None)

# A busy machine must not turn a slow example into a failure.
settings.register_profile("deskside", deadline=None, derandomize=True)
settings.load_profile("deskside")
