"""What people read: the terminal table, the Chrome trace and the HTML page."""
