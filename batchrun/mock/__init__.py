"""The mock endpoint: an OpenAI-compatible server with token timing, slots, seeded faults and its own request log."""
