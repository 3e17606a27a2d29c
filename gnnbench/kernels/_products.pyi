"""Types of the compiled module that ``cython_ext/products.pyx`` builds to."""

from gnnbench.records import FloatArray

def runs() -> bool: ...
def made_by_intel() -> bool: ...
def crew(threads: int, rows: int) -> int: ...
def product_space(depth: int, width: int) -> int: ...
def gradient_space(depth: int, width: int, threads: int) -> int: ...
def multiply(
    a: FloatArray,
    w: FloatArray,
    bias: FloatArray | None,
    relu: bool,
    out: FloatArray,
    space: FloatArray,
    threads: int,
) -> None: ...
def differentiate(
    g: FloatArray,
    output: FloatArray | None,
    a: FloatArray | None,
    w: FloatArray,
    grad_a: FloatArray | None,
    grad_w: FloatArray | None,
    grad_bias: FloatArray,
    space: FloatArray,
    threads: int,
) -> None: ...
