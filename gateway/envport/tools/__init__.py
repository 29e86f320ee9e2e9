"""Tools: from typed methods to JSON Schema, and from the arguments of a call and its result back again."""
