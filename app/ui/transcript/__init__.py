"""The transcript: turns drawn by ourselves, block by block, so that long answers and long conversations stay cheap."""
