"""The environment my_game."""
