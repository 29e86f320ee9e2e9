from __future__ import annotations

import pytest
from extras import MISSING


def test_the_training_bridge_can_be_tested():
    if MISSING:
        pytest.skip(f"the training bridge is not tested: {', '.join(MISSING)} missing (pip install 'envport[trl]')")
