"""The command line: parse, open the house, one runner call, one rendering. Heavy imports wait until a command runs."""
