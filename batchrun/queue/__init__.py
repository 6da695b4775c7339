"""Celery as the carrier: hints go in, the injected performer gets them. The only room that may say "celery"."""
