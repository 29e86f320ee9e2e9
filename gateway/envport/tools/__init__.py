"""Tools: makes JSON Schema from typed methods, checks the arguments of calls, and converts their results."""
