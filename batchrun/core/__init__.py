"""The pure heart: what a job, an item, an attempt and an outcome are, and what follows from what. No I/O, no clock."""
