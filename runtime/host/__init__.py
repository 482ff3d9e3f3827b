"""The host: one asyncio process that serves the window and other programs and supervises the workers.

Composition root: `runtime.host.main`. Nothing here imports llama_cpp or Qt.
"""
