"""Run a batch of prompts through any OpenAI-compatible endpoint, and never pay twice without being told."""

__version__ = "0.1.0"
