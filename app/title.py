"""A conversation's title from its first question."""

MAX_TITLE_CHARS = 48


def title_from(text: str) -> str:
    """The first words of the first line that has any, at most `MAX_TITLE_CHARS`; empty for an empty text."""
    line = next((line for line in (" ".join(raw.split()) for raw in text.splitlines()) if line.strip("#*>`- ")), "")
    line = line.lstrip("#*>`- ")
    if len(line) <= MAX_TITLE_CHARS:
        return line
    cut = line[:MAX_TITLE_CHARS]
    words = cut.rsplit(" ", 1)[0]
    # Scripts without spaces, and very long words, are cut where they are.
    return (words if len(words) > MAX_TITLE_CHARS // 2 else cut).rstrip(" ,;:.-") + "…"
