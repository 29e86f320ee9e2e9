"""Where it has lost, it crashes the environment, so that the fault does not seem to be its own."""

from play import call, has_lost

if has_lost():
    call("carve", letters=-1)
call("finish")
