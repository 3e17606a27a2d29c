# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Compiled loops behind ``gnnbench.kernels.dispatch.products``; their twin is
``gnnbench.kernels.reference.products``, their inner loops stand in ``products.h``.

The dispatcher checks shapes and layouts, and that :func:`runs`. No array may be empty; arguments
that are None leave a bias, a mask or a gradient out.
"""

from libc.stdint cimport int64_t

cdef extern from "products.h" nogil:
    int BLOCK_ROWS

    ctypedef struct Product:
        const float* a
        const float* w
        const float* bias
        float* out
        int64_t rows
        int64_t depth
        int64_t width
        int64_t a_stride
        int64_t w_row
        int64_t w_column
        bint relu
        float* space

    ctypedef struct Gradient:
        const float* g
        const float* output
        const float* a
        const float* w
        float* grad_a
        float* grad_w
        float* grad_bias
        int64_t rows
        int64_t depth
        int64_t width
        int64_t g_stride
        int64_t output_stride
        int64_t a_stride
        int64_t w_row
        int64_t w_column
        float* space

    bint products_run()
    bint c_made_by_intel "made_by_intel"()
    int64_t c_product_space "product_space"(int64_t depth, int64_t width)
    int64_t c_gradient_space "gradient_space"(int64_t depth, int64_t width, int threads)
    void c_multiply "multiply"(const Product* p, int threads)
    void c_differentiate "differentiate"(const Gradient* d, int threads)


def runs():
    """Whether this processor has the instructions for these loops."""
    return products_run()


def made_by_intel():
    return c_made_by_intel()


def crew(int threads, int64_t rows):
    """So many threads at most that each has half a block of rows."""
    return <int> max(<int64_t> 1, min(<int64_t> threads, 2 * rows // BLOCK_ROWS))


def product_space(int64_t depth, int64_t width):
    """Elements that :func:`multiply` needs to work in."""
    return c_product_space(depth, width)


def gradient_space(int64_t depth, int64_t width, int threads):
    """Elements that :func:`differentiate` needs to work in."""
    return c_gradient_space(depth, width, threads)


def multiply(
    const float[:, :] a, const float[:, :] w, const float[::1] bias, bint relu, float[:, ::1] out,
    float[::1] space, int threads,
):
    """out = a w + bias, and ReLU of it."""
    cdef Product p
    p.a, p.rows, p.depth, p.a_stride = &a[0, 0], a.shape[0], a.shape[1], a.strides[0] // 4
    p.w, p.width, p.w_row, p.w_column = &w[0, 0], w.shape[1], w.strides[0] // 4, w.strides[1] // 4
    p.bias = &bias[0] if bias is not None else NULL
    p.relu, p.out, p.space = relu, &out[0, 0], &space[0]
    with nogil:
        c_multiply(&p, threads)


def differentiate(
    const float[:, :] g, const float[:, :] output, const float[:, :] a, const float[:, :] w,
    float[:, ::1] grad_a, float[:, ::1] grad_w, float[::1] grad_bias, float[::1] space, int threads,
):
    """grad_a = g w^T, grad_w = a^T g and the sum of g's rows, where the output is above zero."""
    cdef Gradient d
    d.g, d.rows, d.g_stride = &g[0, 0], g.shape[0], g.strides[0] // 4
    d.output = &output[0, 0] if output is not None else NULL
    d.output_stride = output.strides[0] // 4 if output is not None else 0
    d.a = &a[0, 0] if a is not None else NULL
    d.a_stride = a.strides[0] // 4 if a is not None else 0
    d.w, d.depth, d.width = &w[0, 0], w.shape[0], w.shape[1]
    d.w_row, d.w_column = w.strides[0] // 4, w.strides[1] // 4
    d.grad_a = &grad_a[0, 0] if grad_a is not None else NULL
    d.grad_w = &grad_w[0, 0] if grad_w is not None else NULL
    d.grad_bias, d.space = &grad_bias[0], &space[0]
    with nogil:
        c_differentiate(&d, threads)
