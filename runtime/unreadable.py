"""What decoders raise on bytes that are not what they should be: for files and answers that others can have changed."""

import msgspec

UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""Of msgspec, for JSON and msgpack; a value nested some thousand times ends it in the second, which is none of its own
errors."""
