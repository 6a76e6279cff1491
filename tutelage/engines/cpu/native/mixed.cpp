// Element-wise kernels of layers whose products are in bfloat16 (see ../fused/arithmetic.py): they read and write
// operands of products in bfloat16, residual streams in float32, and compute in float32. Pointers are to tensors
// without gaps; rows are whole vectors.

#include <vector>

#include "gates.hpp"
#include "half.hpp"
#include "structs.hpp"
#include "norms.hpp"
#include "rows.hpp"

extern "C" {

// h = x + more and y = h r w for rows [n][d], with r = (mean h^2 + epsilon)^-1/2. Where `more` is null, h is x and is
// not written.
void tutelage_mixed_norm(const ThreadPool *pool, int64_t rows, int64_t d, const float *x, const Half *more,
                         const float *w, float epsilon, float *h, Half *y, float *r) {
    for_rows(*pool, rows, d, [&](long first, long end) {
        for (long row = first; row < end; row++) {
            const float *from = x + row * d;
            if (more) {
                for (long i = row * d; i < (row + 1) * d; i += LANES) store(h + i, load(x + i) + load(more + i));
                from = h + row * d;
            }
            r[row] = root_mean_square(from, d, epsilon);
            for (long j = 0; j < d; j += LANES) store(y + row * d + j, load(from + j) * r[row] * load(w + j));
        }
    });
}

// The gradients of a norm, see norms.hpp; to_x is rounded into `half` too. `more` may be null.
void tutelage_mixed_norm_gradients(const ThreadPool *pool, int64_t rows, int64_t d, const Half *g, const float *x,
                                   const float *r, const float *w, const float *more, float *to_x, Half *half,
                                   float *sums) {
    norm_gradients(*pool, rows, d, g, x, r, w, more, sums,
                   [&](long i, Floats y) { store(to_x + i, y), store(half + i, y); });
}

// p = silu(g) u for rows [g | u] of 2 m numbers.
void tutelage_mixed_swiglu(const ThreadPool *pool, int64_t rows, int64_t m, const Half *pairs, Half *p) {
    for_rows(*pool, rows, 2 * m, [&](long first, long end) {
        for (long row = first; row < end; row++)
            for (long j = 0; j < m; j += LANES)
                store(p + row * m + j, silu(load(pairs + 2 * row * m + j)) * load(pairs + 2 * row * m + m + j));
    });
}

// p = silu(g) u, and the gradients of [g | u] from the gradient of p.
void tutelage_mixed_swiglu_gradients(const ThreadPool *pool, int64_t rows, int64_t m, const Half *pairs,
                                     const Half *to_p, Half *p, Half *to_pairs) {
    for_rows(*pool, rows, 2 * m, [&](long first, long end) {
        for (long row = first; row < end; row++)
            for (long i = row * m, g = 2 * row * m, u = g + m; i < (row + 1) * m; i += LANES, g += LANES, u += LANES) {
                const GateGradients found(load(pairs + g), load(pairs + u), load(to_p + i));
                store(p + i, found.product), store(to_pairs + u, found.to_up), store(to_pairs + g, found.to_gate);
            }
    });
}

// Rotates the first `heads` heads of each row of `size` numbers, in place, by the angles of cos and sin [n][w], whose
// halves are equal; backwards where `direction` is -1, not 1. Where `norm` [w] is not null, a head is normalised before,
// with its reciprocal root mean square in `scales` [n][heads]. w is a multiple of 32.
void tutelage_mixed_rotate(const ThreadPool *pool, int64_t rows, int64_t size, int64_t heads, int64_t w, Half *x,
                           const float *cos, const float *sin, float direction, const float *norm, float epsilon,
                           float *scales) {
    const long half = w / 2;
    for_rows(*pool, rows, heads * w, [&](long first, long end) {
        std::vector<float> head(w);
        for (long row = first; row < end; row++)
            for (long number = 0; number < heads; number++) {
                Half *to = x + row * size + number * w;
                for (long i = 0; i < w; i += LANES) store(head.data() + i, load(to + i));
                if (norm) normalise(head.data(), w, norm, scales[row * heads + number] = root_mean_square(head.data(), w, epsilon));
                for (long i = 0, j = row * w; i < half; i += LANES, j += LANES) {
                    const Rotated y(load(head.data() + i), load(head.data() + i + half), load(cos + j), direction * load(sin + j));
                    store(to + i, y.first);
                    store(to + i + half, y.second);
                }
            }
    });
}

// y = x + more. The size is a multiple of 16.
void tutelage_mixed_add(const ThreadPool *pool, int64_t size, const float *x, const Half *more, float *y) {
    for_rows(*pool, size / LANES, LANES, [&](long first, long end) {
        for (long i = first * LANES; i < end * LANES; i += LANES) store(y + i, load(x + i) + load(more + i));
    });
}
}
