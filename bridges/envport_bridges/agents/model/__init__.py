"""The model behind the endpoint: contexts that are never tokenized twice, what was sampled in each, and who samples."""
