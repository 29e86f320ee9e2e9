"""The MCP server my_server, and the score of its tasks."""
