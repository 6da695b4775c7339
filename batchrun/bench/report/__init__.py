"""Reports: one content, written as a page for browsers, as Markdown, as JSON and as a table."""
