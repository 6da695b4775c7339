"""The endpoint: one request out, one outcome in; nothing the network or the server does is an exception here."""
