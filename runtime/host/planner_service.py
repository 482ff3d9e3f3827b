"""Plans, for the event loop."""

from runtime.errors import WorldFault
from runtime.messages.fit import Machine, MemoryPlan, PlanRequest
from runtime.messages.library import VerdictRequest, Verdicts


class PlannerService:
    """Home: the event loop."""

    async def plan(self, request: PlanRequest) -> MemoryPlan:
        """Plan one load."""
        raise WorldFault("Plans are not made yet.")

    async def verdicts(self, request: VerdictRequest) -> Verdicts:
        """Judge a repository."""
        raise WorldFault("Plans are not made yet.")

    async def machine(self, *, measure_anew: bool = False) -> Machine:
        """What can be planned with now."""
        raise WorldFault("Plans are not made yet.")
