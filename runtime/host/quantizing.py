"""Making smaller files of models, for the event loop: a child process does it, a job shows it."""

from runtime.errors import WorldFault
from runtime.messages.library import Job, QuantizePreview, QuantizeRequest


class Quantizing:
    """Home: the event loop."""

    async def start(self, request: QuantizeRequest) -> Job:
        """Begin."""
        raise WorldFault("Nothing is quantized yet.")

    async def preview(self, request: QuantizeRequest) -> QuantizePreview:
        """What the result would be."""
        raise WorldFault("Nothing is quantized yet.")
