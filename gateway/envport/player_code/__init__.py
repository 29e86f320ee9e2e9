"""The player's code: what a player gives an environment to run. It is trusted with nothing.

An environment's own code says what the reward is. The player's code runs in a child of it, in a sandbox that has
neither the way to the gateway, nor the environment's memory, files and variables, nor the network.
"""

from envport.player_code.bubblewrap import PlayerLimits
from envport.player_code.kept import KeptProgram
from envport.player_code.result import PlayerRun
from envport.player_code.running import PlayerCode, require_player_code
from envport.player_code.workspace import Workspace

__all__ = ["KeptProgram", "PlayerCode", "PlayerLimits", "PlayerRun", "Workspace", "require_player_code"]
