"""Typed values that cross a process border.

`ipc`: host <-> worker, length-framed over a loopback socket (see `runtime.messages.frames`).
`api`: host <-> its own clients (window, terminal), JSON over HTTP and server-sent events.
`shared`: the values both carry.
"""
