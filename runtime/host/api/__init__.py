"""HTTP dialects of the host: OpenAI's for other programs, the admin one for our own clients."""
