"""Surroundings of every test: an empty home, Qt without a screen, no proxy, hypothesis without a clock."""

import atexit
import os
import shutil
import signal
import tempfile

from hypothesis import settings

# A shell starts what runs in its background deaf to Ctrl-C, and programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Models, settings and the trash of whoever runs the tests are neither seen nor touched.
_home = tempfile.mkdtemp(prefix="deskside-home-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)
_ELSEWHERE = ("XDG_DATA", "XDG_CONFIG", "XDG_CACHE", "HF_", "OLLAMA_")
os.environ |= {"HOME": _home, "USERPROFILE": _home}
for _name in [
    name for name in os.environ if name.startswith(("XDG_DATA", "XDG_CONFIG", "XDG_CACHE", "HF_", "OLLAMA_"))
]:
    del os.environ[_name]

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
for _name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(_name, None)

# A busy machine must not turn a slow example into a failure.
settings.register_profile("deskside", deadline=None, derandomize=True)
settings.load_profile("deskside")
