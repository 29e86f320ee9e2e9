"""The rollout channel: one WebSocket on which a trainer opens and plays any number of episodes."""

from envport.channel.surface import CHANNEL_PATH, ChannelSurface

__all__ = ["CHANNEL_PATH", "ChannelSurface"]
