"""`envport model serve`: a saved model behind the address that agents were trained with, token for token."""
