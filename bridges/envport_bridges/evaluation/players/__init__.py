"""What plays an episode over MCP: policies, which are functions, and agents, which are programs."""
