"""What the OpenAPI document says of the tool servers' part of the admin API."""

from runtime.host.api.operations import EVENTS, Operation
from runtime.messages.tools import (
    SignInBegun,
    ToolCallEvent,
    ToolCallRequest,
    ToolServerChange,
    ToolServerConfig,
    ToolServerInfo,
    ToolServerLog,
    ToolServerRequest,
    ToolServersText,
    ToolsState,
)

TOOLS_OPERATIONS = (
    Operation("get", "/admin/tools", "Tool servers with states and tools.", answer=ToolsState),
    Operation("post", "/admin/tools/servers", "Add a tool server.", ToolServerConfig, ToolServerInfo, 201),
    Operation("put", "/admin/tools/servers", "Change one; it starts anew.", ToolServerChange, ToolServerInfo),
    Operation("delete", "/admin/tools/servers", "Forget one and its secrets.", ToolServerRequest, status=204),
    Operation("post", "/admin/tools/import", "Add those of an `mcpServers` text.", ToolServersText, ToolsState, 201),
    Operation("post", "/admin/tools/test", "Try one without keeping it.", ToolServerConfig, ToolServerInfo),
    Operation("post", "/admin/tools/start", "Start one that is not running.", ToolServerRequest, ToolServerInfo),
    Operation("post", "/admin/tools/restart", "Start one anew.", ToolServerRequest, ToolServerInfo),
    Operation("post", "/admin/tools/log", "What one wrote lately.", ToolServerRequest, ToolServerLog),
    Operation("post", "/admin/tools/sign-in", "Begin a sign-in to one.", ToolServerRequest, SignInBegun),
    Operation("post", "/admin/tools/sign-in/cancel", "Give it up.", ToolServerRequest, status=204),
    Operation("post", "/admin/tools/sign-out", "Forget the sign-in.", ToolServerRequest, ToolServerInfo),
    Operation(
        "post",
        "/admin/tools/call",
        "Run a tool; closing the stream cancels it.",
        ToolCallRequest,
        ToolCallEvent,
        content=EVENTS,
    ),
)
