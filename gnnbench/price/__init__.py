"""What a program takes on a platform, without training."""
