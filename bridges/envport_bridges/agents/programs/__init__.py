"""An agent's program: how it is briefed, the folders and the sandbox in which it runs, and how it is ended."""
