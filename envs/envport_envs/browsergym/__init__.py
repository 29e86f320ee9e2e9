"""Tasks in a web browser: `browsergym:miniwob.click-button`, and pages of your own."""

from envport_envs.browsergym.tasks import BrowserTask

__all__ = ["BrowserTask"]
