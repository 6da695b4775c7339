"""What the commands do: register, try, perform, resume, settle doubts, control, export. One verb a module."""
