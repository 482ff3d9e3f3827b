"""A pretended host in a process of its own, whose next chat streams a long answer of a chosen shape.

`python -m tests.fakes.streaming_host SHAPE N_TOKENS` prints one line, the `HostFile` as JSON, and runs until its
standard input ends. A process of its own, so that making the answer does not take the interpreter from the window.
"""

import sys
from collections import deque
from pathlib import Path

import msgspec

from runtime.messages.api import ChatDelta, ChatEvent, ChatProgress
from tests.fakes.answers import Reply, finished
from tests.fakes.fake_host import FakeHost

TOKEN_CHARS = 4
ANSWER = (Path(__file__).parents[1] / "pictures" / "answer.md").read_text(encoding="utf-8")

SHAPES = {
    "mixed": f"{ANSWER}\n\n",
    "code": "def f(x):\n    return [i * 2 for i in range(x)]  # a comment\n\n",
    "paragraph": "word and more **bold** text without any end ",
    "line": "wordandmore",
    "table": "| cell one | `two` | three and more |\n",
    "list": "- item with some text in it\n",
    "quote": "> quoted text in a line\n",
    "formulas": "Then $x^2+y$ and\n\n$$\\frac{a}{b}+\\sqrt{x}$$\n\n",
}
"""What is repeated until the answer is long enough."""

BEGINNINGS = {"code": "```python\n", "table": "| a | b | c |\n|---|---|---|\n"}


def long_text(shape: str, n_tokens: int) -> str:
    """Text of a shape, four characters a token."""
    n_chars = n_tokens * TOKEN_CHARS
    piece = SHAPES[shape]
    return (BEGINNINGS.get(shape, "") + piece * (n_chars // len(piece) + 1))[:n_chars]


def stream_of(text: str) -> tuple[ChatEvent, ...]:
    """The events of an answer with this text."""
    pieces = [text[at : at + TOKEN_CHARS] for at in range(0, len(text), TOKEN_CHARS)]
    return (ChatProgress(12, 12), *(ChatDelta("content", piece, n_tokens=1) for piece in pieces), finished(len(pieces)))


def main() -> int:
    """Serve until standard input ends."""
    shape, n_tokens = sys.argv[1], int(sys.argv[2])
    reply = Reply(stream_of(long_text(shape, n_tokens)), pace_s=0.005, events_per_write=16)
    with FakeHost(replies=deque([reply, reply])) as host:
        sys.stdout.write(msgspec.json.encode(host.host_file).decode() + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
