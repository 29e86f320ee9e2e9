"""The control plane: FastAPI routes for trainers, evaluators and people."""

from envport.http.routes import control_plane

__all__ = ["control_plane"]
