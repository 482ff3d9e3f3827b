"""Many clients of a chat server at once, in a process of their own: `python -m tests.bench.clients`.

One job a line on standard input, one result a line on standard output. Each client asks one request after the other,
streaming, each over a connection of its own (llama.cpp's server now and then closes one that is kept). While an answer
comes only its first word is looked for, so that the load itself costs next to nothing; afterwards it is checked: whole,
and as long as was asked for.
"""

import asyncio
import random
import re
import sys
import time

import msgspec

GIVE_UP_S = 300.0

_FIRST_WORD = re.compile(rb'"content":"[^"]')
_LENGTH = re.compile(rb'"completion_tokens":(\d+)')
_WORDS = (
    *("river", "stone", "morning", "garden", "letter", "window", "mountain", "winter", "market", "teacher", "silver"),
    *("journey", "forest", "engine", "harbour", "village", "captain", "shadow", "music", "paper", "bridge", "summer"),
    *("doctor", "island", "kitchen", "thunder", "library", "soldier", "candle", "orange"),
)


class Job(msgspec.Struct, frozen=True):
    """`n_clients` clients with `n_requests` each; `seed` chooses the prompts and the lengths."""

    port: int
    model: str
    n_clients: int
    n_requests: int
    seed: int


class Result(msgspec.Struct, frozen=True):
    """Tokens generated, seconds from the first request to the last end, and time to first token of each request."""

    tokens: int
    wall_s: float
    first_s: tuple[float, ...]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class Body(msgspec.Struct, frozen=True):
    """A request that both servers understand alike."""

    model: str
    messages: list[dict[str, str]]
    max_tokens: int
    stream: bool = True
    stream_options: StreamOptions = StreamOptions()
    ignore_eos: bool = True
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05


class Answer(asyncio.Protocol):
    """One connection; holds the bytes of the answer that is coming."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._received = bytearray()
        self._first_at: float | None = None
        self._ended: asyncio.Future[tuple[float, bytes]]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes) -> asyncio.Future[tuple[float, bytes]]:
        """Send; the answer is when its first word came, and all of it."""
        self._received.clear()
        self._first_at = None
        self._ended = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._ended

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._first_at is None and _FIRST_WORD.search(self._received):
            self._first_at = time.monotonic()
        if self._received.endswith(b"\r\n0\r\n\r\n") and not self._ended.done():
            self._ended.set_result((self._first_at or time.monotonic(), bytes(self._received)))
        elif b" 200 OK\r\n" not in self._received[:32] and b"\r\n\r\n" in self._received:
            self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if hasattr(self, "_ended") and not self._ended.done():
            self._ended.set_exception(ConnectionError(f"{exc or ''} {bytes(self._received[:600])!r}"))


def requests_of(job: Job) -> list[list[tuple[bytes, int]]]:
    """What each client asks, with the length of each answer."""
    draw = random.Random(job.seed)
    asked = []
    for _ in range(job.n_clients):
        mine = []
        for _ in range(job.n_requests):
            words = " ".join(draw.choice(_WORDS) for _ in range(draw.randint(20, 80)))
            n_tokens = draw.randint(32, 96)
            body = msgspec.json.encode(Body(job.model, [{"role": "user", "content": f"Tell of: {words}."}], n_tokens))
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{job.port}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            mine.append((head.encode() + body, n_tokens))
        asked.append(mine)
    return asked


async def one_client(port: int, requests: list[tuple[bytes, int]]) -> list[tuple[float, int]]:
    """Ask one after the other; for each the time to first token and its tokens."""
    told = []
    for request, n_tokens in requests:
        began_at = time.monotonic()
        _, connection = await asyncio.get_running_loop().create_connection(Answer, "127.0.0.1", port)
        first_at, answer = await connection.ask(request)
        lengths = _LENGTH.findall(answer)
        if not lengths or int(lengths[-1]) != n_tokens or b"data: [DONE]" not in answer:
            raise ValueError(f"an answer of {n_tokens} tokens was asked for: {answer[-600:]!r}")
        told.append((first_at - began_at, n_tokens))
        connection.transport.close()
    return told


async def carry_out(job: Job) -> Result:
    asked = requests_of(job)
    began_at = time.monotonic()
    async with asyncio.timeout(GIVE_UP_S):
        told = await asyncio.gather(*(one_client(job.port, mine) for mine in asked))
    wall_s = time.monotonic() - began_at
    return Result(
        sum(tokens for mine in told for _, tokens in mine), wall_s, tuple(first for mine in told for first, _ in mine)
    )


def main() -> int:
    for line in sys.stdin:
        result = asyncio.run(carry_out(msgspec.json.decode(line, type=Job)))
        print(msgspec.json.encode(result).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
