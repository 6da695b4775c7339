"""What was measured and what follows from it: request times, figures, targets, ladders, and the result document."""
