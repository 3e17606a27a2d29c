"""Reports for people: the terminal table, the Chrome trace and the HTML page."""
