"""Imports `openreward` without the packages of the vendors of models, which take most of the time."""

from __future__ import annotations

import os
import sys
from unittest.mock import MagicMock

for _name in (
    "rollout",
    "serializers.ant",
    "serializers.gdm",
    "serializers.oai_completions",
    "serializers.oai_responses",
):
    sys.modules[f"openreward.api.rollouts.{_name}"] = MagicMock()
os.environ["OPENREWARD_DISABLE_UPDATE_CHECK"] = "1"
