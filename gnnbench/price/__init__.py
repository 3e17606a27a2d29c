"""What spans take on a platform: clocks give them durations, the scheduler makes a timeline of
them, folds sum it up. A dry run goes through a program without training."""
