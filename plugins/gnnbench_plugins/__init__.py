"""The strategies that come with gnnbench, one folder a system, one file a part."""
