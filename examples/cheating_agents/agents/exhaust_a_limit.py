"""Where it has lost, it plays on until a limit ends the episode, so that the game itself never says so."""

from play import call, has_lost

if has_lost():
    for _ in range(10):
        call("carve", letters=4)
call("finish")
