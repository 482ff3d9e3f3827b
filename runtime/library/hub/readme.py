"""The text of a repository's page, cut down to what a person reads first."""

import re

MAX_CHARS = 6000
# The text is a stranger's: every pattern has a bound, so that none takes long on text made to be slow.
_FRONT = re.compile(r"\A\ufeff?\s*---\s*\n.*?\n---\s*(\n|\Z)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]\n]{0,200}\]\([^)\n]{0,500}\)")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>")
_EMPTY_LINK = re.compile(r"\[[ \t]{0,20}\]\([^)\n]{0,500}\)")
_BLANK = re.compile(r"\n{3,}")


def description_of(readme: str) -> str:
    """Markdown without its settings block, comments, HTML and pictures; at most `MAX_CHARS`, cut at a line."""
    text = readme.replace("\r\n", "\n")
    text = _FRONT.sub("", text, count=1)
    text = _COMMENT.sub("", text)
    text = _IMAGE.sub("", text)
    text = _TAG.sub("", text)
    text = _EMPTY_LINK.sub("", text)
    text = "\n".join(line.rstrip() for line in text.split("\n"))
    text = _BLANK.sub("\n\n", text).strip()
    if len(text) <= MAX_CHARS:
        return text
    cut = text.rfind("\n", 0, MAX_CHARS)
    return text[: cut if cut > 0 else MAX_CHARS].rstrip() + "\n\n…"
