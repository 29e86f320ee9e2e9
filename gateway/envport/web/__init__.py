"""The page at `/`: the catalogue, a playground, and the recorded episodes.

Nothing here imports NiceGUI before a browser asks for the page; `envport.web.engine` and what it imports do.
"""

from envport.web.surface import PageSurface, page_is_installed

__all__ = ["PageSurface", "page_is_installed"]
