"""What a request asks of its answer, as one grammar and the marks around it."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class AnswerPlan:
    """How an answer is led.

    Attributes:
        grammar: GBNF; "" leaves the text free.
        root: the rule of it an answer must match.
        triggers: the grammar holds from where one of these texts appears, and takes the text too; (text, whether it
            only counts at the start of the answer). Empty: from the start, behind the thought.
        thought_open, thought_close: the marks around a thought.
        thought_is_open: the answer begins inside the thought.
        may_think: the answer may begin with `thought_open`.
        thought_budget: most tokens of thought before `forced_close` is written; None is no bound.
        forced_close: what ends a thought that is too long.
    """

    grammar: str = ""
    root: str = "root"
    triggers: tuple[tuple[str, bool], ...] = ()
    thought_open: str = ""
    thought_close: str = ""
    thought_is_open: bool = False
    may_think: bool = False
    thought_budget: int | None = None
    forced_close: str = ""

    @property
    def is_free(self) -> bool:
        """Whether nothing is asked."""
        return not self.grammar and self.thought_budget is None

    @cached_property
    def thought_open_bytes(self) -> bytes:
        """The opening mark."""
        return self.thought_open.encode()

    @cached_property
    def thought_close_bytes(self) -> bytes:
        """The closing mark."""
        return self.thought_close.encode()

    @cached_property
    def trigger_bytes(self) -> tuple[tuple[bytes, bool], ...]:
        """The triggers."""
        return tuple((text.encode(), at_start) for text, at_start in self.triggers)


FREE_ANSWER = AnswerPlan()
