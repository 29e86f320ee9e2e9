"""Built-in environments and adapters to foreign ones."""
