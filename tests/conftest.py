"""What all tests need, however they were started."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what it runs in the background; the programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
