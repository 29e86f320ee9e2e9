"""The environment `workspace`: a shell, a Python and files, and tasks whose hidden tests decide."""
