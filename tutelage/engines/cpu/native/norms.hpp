// The root mean square of a norm, and its gradients, for gradients of its output in float32 and in bfloat16.
#pragma once

#include <cmath>

#include "half.hpp"
#include "rows.hpp"

namespace {

// r = (mean x^2 + epsilon)^-1/2. Not inlined, so that every caller gets the same bits.
NOT_INLINED float root_mean_square(const float *x, long size, float epsilon) {
    Floats squares{};
    long i = 0;
    for (; i + LANES <= size; i += LANES) squares += load(x + i) * load(x + i);
    float rest = 0;
    for (; i < size; i++) rest += x[i] * x[i];
    return 1.0f / std::sqrt((sum(squares) + rest) / size + epsilon);
}

// x r w, in place.
INLINE void normalise(float *x, long size, const float *w, float r) {
    for (long i = 0; i < size; i++) x[i] = x[i] * r * w[i];
}

// With n = x r and g the gradient of n w, for rows [n][d]: to_x = r (g w - n mean(g w n)) + more, where `more` may be
// null, and sums [parts][d] += g n. Calls write(i, y) for the vector y of to_x at i.
template <class Gradient, class Write>
void norm_gradients(const ThreadPool &pool, long rows, long d, const Gradient *g, const float *x, const float *r,
                    const float *w, const float *more, float *sums, const Write &write) {
    for_parts(pool, rows, d, [&](long part, long first, long end) {
        float *own = sums + part * d;
        for (long row = first; row < end; row++) {
            Floats along{};
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES) {
                const Floats product = load(g + i) * load(x + i) * r[row];
                store(own + j, load(own + j) + product);
                along += product * load(w + j);
            }
            const float mean = sum(along) / d * r[row];
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES) {
                const Floats y = r[row] * (load(g + i) * load(w + j) - load(x + i) * mean);
                write(i, more ? y + load(more + i) : y);
            }
        }
    });
}

}  // namespace
