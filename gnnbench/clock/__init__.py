"""Clocks give spans their durations; the scheduler turns spans and durations into a timeline."""
