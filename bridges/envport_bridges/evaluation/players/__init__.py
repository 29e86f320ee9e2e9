"""What plays an episode over MCP beside models and agents: policies, which are functions."""
