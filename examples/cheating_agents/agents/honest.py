"""Plays by the rules."""

from play import call, has_lost

has_lost()
call("finish")
