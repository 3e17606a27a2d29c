"""What the operating system needs of the project: files, signals, mapped arrays, cores."""
