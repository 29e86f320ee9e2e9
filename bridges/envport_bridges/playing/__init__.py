"""Playing episodes without knowing what for: places, seats at an episode, policies, and programs that play."""
