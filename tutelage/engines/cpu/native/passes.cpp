// What a model computes between its products, each in one pass over memory (see ../lean and ../logprobs.py).

#include <cmath>

#include "given.hpp"
#include "kernel.hpp"
#include "threads.hpp"

namespace {

constexpr long PART = 1 << 16;  // floats: a part of less is not worth a thread

long parts_of(long rows, long width) { return std::min(rows, rows * width / PART + 1); }

// work(part, first, behind) for rows of so many floats. The parts are the same for any number of threads, and so is what
// is summed up in each.
template <class Work>
void for_rows(const Team &team, long rows, long width, const Work &work) {
    const long parts = parts_of(rows, width);
    together(team, 1, [&](Worker &me) {
        me.share(parts, parts,
                 [&](long part, long) { work(part, rows * part / parts, rows * (part + 1) / parts); });
    });
}

// `count` numbers and `rest` behind them.
Floats filled(const float *x, long count, float rest) {
    alignas(64) float part[LANES];
    std::fill_n(part, LANES, rest);
    std::copy_n(x, count, part);
    return load(part);
}

// Sums of many vectors: so many in float32, and these in double precision.
constexpr long RUN = 256 * LANES;

}  // namespace

extern "C" {

// Parts that rows are taken in.
int64_t tutelage_parts(int64_t rows, int64_t d) { return parts_of(rows, d); }

// y = x r w for rows [n][d], with r [n]. d is a multiple of 16.
void tutelage_scale_rows(const Team *team, int64_t rows, int64_t d, const float *x, const float *r, const float *w,
                         float *y) {
    for_rows(*team, rows, d, [&](long, long first, long behind) {
        for (long row = first; row < behind; row++)
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES)
                store(y + i, load(x + i) * r[row] * load(w + j));
    });
}

// With n = x r and g the gradient of n w: to_x = r (g w - n mean(g w n)) + more, which may be null, and for each part
// sums [d] += g n.
void tutelage_norm_gradients(const Team *team, int64_t rows, int64_t d, const float *g, const float *x, const float *r,
                             const float *w, const float *more, float *to_x, float *sums) {
    for_rows(*team, rows, d, [&](long part, long first, long behind) {
        float *own = sums + part * d;
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
    for_rows(*team, size / LANES, LANES, [&](long, long first, long behind) {
        for (long i = first * LANES; i < behind * LANES; i += LANES) {
            const Floats x = load(g + i), up = load(u + i), grad = load(to_gate + i);
            const Floats share = 1.0f / (1.0f + exponential(-x)), through = x * share;
            store(p + i, through * up);
            store(to_up + i, grad * through);
            store(to_gate + i, grad * up * (share + through * (1.0f - share)));
        }
    });
}

// The pairs (x[i], x[i + w / 2]) of [n][heads][w] turned by angles of [n][w], whose halves are the same; back where `way`
// is -1, not 1. w is a multiple of 32.
void tutelage_turn(const Team *team, int64_t n, int64_t heads, int64_t w, const float *x, const float *cos,
                   const float *sin, float way, float *y) {
    const long half = w / 2;
    for_rows(*team, n, heads * w, [&](long, long first, long behind) {
        for (long row = first; row < behind; row++)
            for (long head = row * heads; head < (row + 1) * heads; head++)
                for (long i = head * w, j = row * w; i < head * w + half; i += LANES, j += LANES) {
                    const Floats a = load(x + i), b = load(x + i + half), c = load(cos + j), s = way * load(sin + j);
                    store(y + i, a * c - b * s);
                    store(y + i + half, b * c + a * s);
                }
    });
}

// sums [parts] of x^2, for parts of rows of 16. The size is a multiple of 16.
void tutelage_squares(const Team *team, int64_t size, const float *x, double *sums) {
    for_rows(*team, size / LANES, LANES, [&](long part, long first, long behind) {
        double total = 0;
        for (long start = first * LANES; start < behind * LANES; start += RUN) {
            Floats run{};
            for (long i = start; i < std::min(start + RUN, behind * LANES); i += LANES) run += load(x + i) * load(x + i);
            total += sum(run);
        }
        sums[part] = total;
    });
}

// x [rows][width] becomes its softmax; the largest and the logarithm of the sum of e^(x - largest) [rows] are told. The
// width is 16 at least.
void tutelage_shares(const Team *team, int64_t rows, int64_t width, float *x, float *most, float *above) {
    const long whole = width / LANES * LANES, rest = width - whole;
    for_rows(*team, rows, width, [&](long, long first, long behind) {
        for (long row = first; row < behind; row++) {
            float *own = x + row * width;
            const float top = largest(larger(own, width, Floats(own[0])));
            const Floats last = exponential(filled(own + whole, rest, -INFINITY) - top);
            double total = sum(last);
            for (long start = 0; start < whole; start += RUN) {
                Floats run{};
                for (long i = start; i < std::min(start + RUN, whole); i += LANES) {
                    const Floats e = exponential(load(own + i) - top);
                    store(own + i, e);
                    run += e;
                }
                total += sum(run);
            }
            const float factor = static_cast<float>(1 / total);
            for (long i = 0; i < whole; i += LANES) store(own + i, load(own + i) * factor);
            put(own + whole, rest, last * factor);
            most[row] = top, above[row] = static_cast<float>(std::log(total));
        }
    });
}
}
