"""The APIs in which agents ask a model: OpenAI chat completions, Anthropic messages, OpenAI responses."""
