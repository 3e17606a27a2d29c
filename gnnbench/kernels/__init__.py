"""Native loops, their readable NumPy twins, and the one dispatcher in front of both."""
