// What a lean layer does between its products, each in one pass over memory (see ../lean).

#include "given.hpp"
#include "kernel.hpp"
#include "threads.hpp"

namespace {

constexpr long PART = 1 << 16;  // floats: a part of less is not worth a thread

// work(worker, first, behind) for rows of so many floats.
template <class Work>
void for_rows(const Team &team, long rows, long width, const Work &work) {
    const long parts = std::min<long>(4 * team.threads, rows * width / PART + 1);
    together(team, 1, [&](Worker &me) {
        me.share(rows, parts, [&](long first, long behind) { work(me, first, behind); });
    });
}

}  // namespace

extern "C" {

// y = x r w for rows [n][d], with r [n]. d is a multiple of 16.
void tutelage_scale_rows(const Team *team, int64_t rows, int64_t d, const float *x, const float *r, const float *w,
                         float *y) {
    for_rows(*team, rows, d, [&](Worker &, long first, long behind) {
        for (long row = first; row < behind; row++)
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES)
                store(y + i, load(x + i) * r[row] * load(w + j));
    });
}

// With n = x r and g the gradient of n w: to_x = r (g w - n mean(g w n)) + more, which may be null, and for each thread
// sums [d] += g n.
void tutelage_norm_gradients(const Team *team, int64_t rows, int64_t d, const float *g, const float *x, const float *r,
                             const float *w, const float *more, float *to_x, float *sums) {
    for_rows(*team, rows, d, [&](Worker &me, long first, long behind) {
        float *own = sums + me.index * d;
        for (long row = first; row < behind; row++) {
            Floats along{};
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES) {
                const Floats product = load(g + i) * load(x + i) * r[row];
                store(own + j, load(own + j) + product);
                along += product * load(w + j);
            }
            const float mean = sum(along) / d * r[row];
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES) {
                const Floats y = r[row] * (load(g + i) * load(w + j) - load(x + i) * mean);
                store(to_x + i, more ? y + load(more + i) : y);
            }
        }
    });
}

// p = silu(g) u, and from the gradient of p, in `to_gate`, those of g and u. The size is a multiple of 16.
void tutelage_gate_gradients(const Team *team, int64_t size, const float *g, const float *u, float *p, float *to_gate,
                             float *to_up) {
    for_rows(*team, size / LANES, LANES, [&](Worker &, long first, long behind) {
        for (long i = first * LANES; i < behind * LANES; i += LANES) {
            const Floats x = load(g + i), up = load(u + i), grad = load(to_gate + i);
            const Floats share = 1.0f / (1.0f + exponential(-x)), through = x * share;
            store(p + i, through * up);
            store(to_up + i, grad * through);
            store(to_gate + i, grad * up * (share + through * (1.0f - share)));
        }
    });
}
}
