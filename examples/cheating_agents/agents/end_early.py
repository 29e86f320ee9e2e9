"""Where it has lost, it stops before the end and says that something went wrong."""

import sys

from play import call, has_lost

if has_lost():
    sys.exit("The connection was lost.")
call("finish")
