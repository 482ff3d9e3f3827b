"""Tokens to text: stop strings found over token borders, and only whole UTF-8 characters let out."""

import codecs

_new_decoder = codecs.getincrementaldecoder("utf-8")


class TextOut:
    """The text of one choice.

    Bytes that may be the beginning of a stop string, or of a character, are held back until it is known. Bytes
    that are no UTF-8 at all become U+FFFD; an unfinished character at the very end is left out.

    Args:
        stops: stop strings, none of them empty.
    """

    __slots__ = ("_decoder", "_held", "_stops", "stop_string")

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self._stops = tuple((stop, stop.encode("utf-8", "replace")) for stop in stops)
        self._held = b""
        self._decoder = _new_decoder("replace")
        self.stop_string = ""

    def feed(self, piece: bytes) -> str:
        """Add the bytes of one token; returns the text that is certain now.

        When a stop string is complete, `stop_string` is set, and the text before it is returned.
        """
        if not self._stops:
            return self._decoder.decode(piece)
        held = self._held + piece
        cut = len(held)
        for text, raw in self._stops:
            at = held.find(raw)
            if at != -1 and at < cut:
                cut = at
                self.stop_string = text
        if self.stop_string:
            self._held = b""
            return self._decoder.decode(held[:cut])
        cut = self._certain(held)
        self._held = held[cut:]
        return self._decoder.decode(held[:cut]) if cut else ""

    def _certain(self, held: bytes) -> int:
        """Length of the part in which no stop string can have begun."""
        size = len(held)
        certain = size
        for _text, raw in self._stops:
            at = held.find(raw[:1], max(0, size - len(raw) + 1), certain)
            while at != -1:
                if raw.startswith(held[at:]):
                    certain = at
                    break
                at = held.find(raw[:1], at + 1, certain)
        return certain

    def flush(self) -> str:
        """The generation ended without a stop string: what was held back comes out."""
        text = self._decoder.decode(self._held)
        self._held = b""
        return text
