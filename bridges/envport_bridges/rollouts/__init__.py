"""Episodes opened and played from Python, in this process or through a gateway, for any trainer."""
