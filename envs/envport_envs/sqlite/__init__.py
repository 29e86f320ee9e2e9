"""Questions of an analyst about a generated database."""
