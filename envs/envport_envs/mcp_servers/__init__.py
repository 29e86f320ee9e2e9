"""Any MCP server as an environment: `mcp:"COMMAND ..."` and `mcp:URL`."""
