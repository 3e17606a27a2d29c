"""The kernels in NumPy, one module a topic: short and slow references for the compiled kernels."""
