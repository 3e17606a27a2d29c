"""A user's request as one record: names resolved, defaults filled in, limits held."""
