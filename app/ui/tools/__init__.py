"""Tools in a chat: which a model may ask for. Their servers are set up on the page Settings."""
