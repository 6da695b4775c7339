"""Other runners through the same two tests as batchrun: killed once and run again, and started twice. Run by hand."""
