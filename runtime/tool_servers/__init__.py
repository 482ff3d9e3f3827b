"""Tool servers: programs and addresses that offer models tools by the Model Context Protocol.

`ToolServers` (in `runtime.tool_servers.servers`) is the whole of it for the host. The official client is imported when
the first server starts, since it costs half a second: only `session`, `oauth` and what they import may name `mcp`.
"""
