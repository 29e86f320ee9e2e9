"""Log lines and trace spans of a gateway, and the principal and episode that they name."""
