"""A scheme whose extra is not installed."""

from envport.errors import MissingExtra

try:
    import package_that_is_not_there  # noqa: F401
except ImportError:
    raise MissingExtra("References with needy:", "textarena") from None
