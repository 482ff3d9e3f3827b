"""What models are on disk, and by which names they are called."""
