"""The agent plane: environments as MCP servers, over HTTP in both protocol eras, and over stdio."""
