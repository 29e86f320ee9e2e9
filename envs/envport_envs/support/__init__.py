"""A customer service with a policy, tools over orders, and a customer who is simulated."""
