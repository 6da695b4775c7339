"""The measuring wing: what an endpoint really does, and how it is read."""
