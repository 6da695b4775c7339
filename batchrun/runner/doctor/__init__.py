"""Looking at everything a job needs before it needs it: ok, warn or fail, each with its mend."""
