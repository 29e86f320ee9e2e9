"""The environment my_workspace."""
