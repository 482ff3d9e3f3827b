"""The model hub: what it lists, its files, who is signed in, and headers of files that are not here.

`runtime.library.hub.hub.Hub` asks it; `runtime.library.hub.headers.HeaderCache` keeps headers. Every call talks to the
network or the disk and blocks: never on an event loop.
"""
