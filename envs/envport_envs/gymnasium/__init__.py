"""Environments of Gymnasium, of MiniGrid, and of whatever else registers there: `gymnasium:FrozenLake-v1`."""
