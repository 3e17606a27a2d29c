"""From a bundle's parts to the steps of an epoch, by kind of schedule."""
