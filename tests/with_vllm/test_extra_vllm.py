from __future__ import annotations

import pytest
from vllm_extra import MISSING


@pytest.mark.slow
def test_vllm_can_be_tested():
    if MISSING:
        pytest.skip(f"vLLM is not tested: {', '.join(MISSING)} missing (make test-vllm)")
