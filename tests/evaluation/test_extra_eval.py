from __future__ import annotations

import pytest
from eval_extra import MISSING


def test_the_evaluation_can_be_tested():
    if MISSING:
        pytest.skip(f"the evaluation is not tested: {', '.join(MISSING)} missing (pip install 'envport[eval]')")
