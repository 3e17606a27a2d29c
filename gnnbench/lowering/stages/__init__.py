"""Stages of an epoch, which lowerings hold and call in the order in which the epoch goes."""
