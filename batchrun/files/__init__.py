"""The files a user sees: input lines become requests, and the ledger's answers become output lines."""
