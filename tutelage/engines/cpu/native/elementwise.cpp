// Element-wise kernels and row sums: the operations of a model between its matrix products, each in one pass over
// memory (see ../fused and ../../logprobs.py). Pointers are to float32 tensors without gaps.

#include <cmath>

#include "structs.hpp"
#include "gates.hpp"
#include "kernel.hpp"
#include "norms.hpp"
#include "rows.hpp"

namespace {

// A vector of `count` numbers and, in the other lanes, `rest`.
Floats filled(const float *x, long count, float rest) {
    alignas(64) float part[LANES];
    std::fill_n(part, LANES, rest);
    std::copy_n(x, count, part);
    return load(part);
}

// Long sums: RUN floats are summed in float32, and the sums of runs in double precision.
constexpr long RUN = 256 * LANES;

// Calls work with x -> x / temperature.
template <class Work>
auto with_division(float temperature, const Work &work) {
    if (temperature == 1) return work([](Floats x) { return x; });
    return work([temperature](Floats x) { return x / temperature; });
}

// The sum of e^(x / temperature - top), which are stored in y, in place or not, unless it is null. The width is 16 at
// least.
double numerators(const float *x, long width, float temperature, float top, float *y) {
    return with_division(temperature, [&](const auto &divided) {
        const long whole = width / LANES * LANES, rest = width - whole;
        const Floats last = exponential(divided(filled(x + whole, rest, -INFINITY)) - top);
        double total = sum(last);
        for (long start = 0; start < whole; start += RUN) {
            Floats run{};
            for (long i = start; i < std::min(start + RUN, whole); i += LANES) {
                const Floats e = exponential(divided(load(x + i)) - top);
                if (y) store(y + i, e);
                run += e;
            }
            total += sum(run);
        }
        if (y) put(y + whole, rest, last);
        return total;
    });
}

// The first of `count` weights at which their cumulative sum passes `uniform` times their total, and the share of that
// weight which is not passed. See `_search` in ../../token_sampling.py.
struct Entry {
    long index = 0;
    double share = 0;

    Entry(const float *weights, long count, double uniform) {
        double total = 0, before = 0, after = 0;
        for (long i = 0; i < count; i++) total += weights[i];
        const double target = uniform * total;
        for (; index < count; index++, before = after)
            if ((after = before + weights[index]) > target || after >= total) break;
        index = std::min(index, count - 1);  // where a weight is not a number
        share = std::clamp((target - before) / (after - before), 0.0, 1.0);
    }
};

constexpr long TOKENS = 4 * LANES;  // whose probabilities are summed before the search

}  // namespace

extern "C" {

// The number of parts that [rows][d] is divided into.
int64_t tutelage_parts(int64_t rows, int64_t d) { return parts_of(rows, d); }

// y = x r w and r = (mean x^2 + epsilon)^-1/2 for rows [n][d]. d is a multiple of 16.
void tutelage_rms_norm(const ThreadPool *pool, int64_t rows, int64_t d, const float *x, const float *w, float epsilon,
                       float *y, float *r) {
    for_rows(*pool, rows, d, [&](long first, long end) {
        for (long row = first; row < end; row++) {
            r[row] = root_mean_square(x + row * d, d, epsilon);
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES)
                store(y + i, load(x + i) * r[row] * load(w + j));
        }
    });
}

// y = x r w for rows [n][d], with r [n]. d is a multiple of 16.
void tutelage_scale_rows(const ThreadPool *pool, int64_t rows, int64_t d, const float *x, const float *r,
                         const float *w, float *y) {
    for_rows(*pool, rows, d, [&](long first, long end) {
        for (long row = first; row < end; row++)
            for (long i = row * d, j = 0; j < d; i += LANES, j += LANES)
                store(y + i, load(x + i) * r[row] * load(w + j));
    });
}

// The gradients of a norm, see norms.hpp. `more` may be null.
void tutelage_norm_gradients(const ThreadPool *pool, int64_t rows, int64_t d, const float *g, const float *x,
                             const float *r, const float *w, const float *more, float *to_x, float *sums) {
    norm_gradients(*pool, rows, d, g, x, r, w, more, sums, [&](long i, Floats y) { store(to_x + i, y); });
}

// p = silu(g) u. The size is a multiple of 16.
void tutelage_swiglu(const ThreadPool *pool, int64_t size, const float *g, const float *u, float *p) {
    for_rows(*pool, size / LANES, LANES, [&](long first, long end) {
        for (long i = first * LANES; i < end * LANES; i += LANES) store(p + i, silu(load(g + i)) * load(u + i));
    });
}

// p = silu(g) u, and the gradients of g and u. `to_gate` holds the gradient of p and is overwritten. The size is a
// multiple of 16.
void tutelage_gate_gradients(const ThreadPool *pool, int64_t size, const float *g, const float *u, float *p,
                             float *to_gate, float *to_up) {
    for_rows(*pool, size / LANES, LANES, [&](long first, long end) {
        for (long i = first * LANES; i < end * LANES; i += LANES) {
            const GateGradients found(load(g + i), load(u + i), load(to_gate + i));
            store(p + i, found.product), store(to_up + i, found.to_up), store(to_gate + i, found.to_gate);
        }
    });
}

// Rotates the pairs (x[i], x[i + w / 2]) of [n][heads][w] by the angles of cos and sin [n][w], whose halves are equal;
// backwards where `direction` is -1, not 1. w is a multiple of 32.
void tutelage_rotate(const ThreadPool *pool, int64_t n, int64_t heads, int64_t w, const float *x, const float *cos,
                   const float *sin, float direction, float *y) {
    const long half = w / 2;
    for_rows(*pool, n, heads * w, [&](long first, long end) {
        for (long row = first; row < end; row++)
            for (long head = row * heads; head < (row + 1) * heads; head++)
                for (long i = head * w, j = row * w; i < head * w + half; i += LANES, j += LANES) {
                    const Rotated pair(load(x + i), load(x + i + half), load(cos + j), direction * load(sin + j));
                    store(y + i, pair.first);
                    store(y + i + half, pair.second);
                }
    });
}

// sums [parts] of x^2, where the parts are those of rows of 16. The size is a multiple of 16.
void tutelage_sum_of_squares(const ThreadPool *pool, int64_t size, const float *x, double *sums) {
    for_parts(*pool, size / LANES, LANES, [&](long part, long first, long end) {
        double total = 0;
        for (long start = first * LANES; start < end * LANES; start += RUN) {
            Floats run{};
            for (long i = start; i < std::min(start + RUN, end * LANES); i += LANES) run += load(x + i) * load(x + i);
            total += sum(run);
        }
        sums[part] = total;
    });
}

// The softmax of x / temperature [rows][width], in place unless it is not kept, with maximum [rows] and log_sum [rows],
// the logarithm of the sum of e^(x / temperature - maximum). The width is 16 at least.
void tutelage_softmax(const ThreadPool *pool, int64_t rows, int64_t width, float *x, float temperature, int64_t keeps,
                      float *maximum, float *log_sum) {
    const long whole = width / LANES * LANES, rest = width - whole;
    for_rows(*pool, rows, width, [&](long first, long end) {
        for (long row = first; row < end; row++) {
            float *own = x + row * width;
            const float top = largest(larger(own, width, Floats(own[0]))) / temperature;
            const double total = numerators(own, width, temperature, top, keeps ? own : nullptr);
            maximum[row] = top, log_sum[row] = static_cast<float>(std::log(total));
            if (!keeps) continue;
            const float factor = static_cast<float>(1 / total);
            for (long i = 0; i < whole; i += LANES) store(own + i, load(own + i) * factor);
            put(own + whole, rest, load_some(own + whole, rest) * factor);
        }
    });
}

// The gradients of logits, (onehot(token) - x) grad factor, in the place of the probabilities x [rows][width].
void tutelage_logit_gradients(const ThreadPool *pool, int64_t rows, int64_t width, float *x, const int64_t *token,
                              const float *grad, float factor) {
    const long whole = width / LANES * LANES, rest = width - whole;
    for_rows(*pool, rows, width, [&](long first, long end) {
        for (long row = first; row < end; row++) {
            float *own = x + row * width;
            volatile float of_token = own[token[row]] * -grad[row];  // not joined with the sum, for the bits of torch
            for (long i = 0; i < whole; i += LANES) store(own + i, load(own + i) * -grad[row] * factor);
            put(own + whole, rest, load_some(own + whole, rest) * -grad[row] * factor);
            own[token[row]] = (of_token + grad[row]) * factor;
        }
    });
}

// Samples a token of each row of logits x [rows][width] by a number in [0, 1), and its log-probability: x / temperature -
// maximum - log_sum of `tutelage_softmax`. `workspaces` has two rows of whole vectors for each thread. The width is 16
// at least.
void tutelage_sample(const ThreadPool *pool, int64_t rows, int64_t width, const float *x, float temperature,
                     const double *uniform, float *workspaces, int64_t *token, float *logp) {
    const long padded = round_up(width, LANES), blocks = pieces(width, TOKENS);
    run_phases(*pool, 1, [&](Worker &worker) {
        float *numerator = workspaces + worker.index * 2 * padded, *sums = numerator + padded;
        worker.share(rows, rows, [&](long row, long) {
            const float *own = x + row * width, top = largest(larger(own, width, Floats(own[0]))) / temperature;
            const float log_sum = static_cast<float>(std::log(numerators(own, width, temperature, top, numerator)));
            for (long block = 0; block < blocks; block++) {
                Floats all{};
                for (long i = block * TOKENS; i < std::min<long>(width, (block + 1) * TOKENS); i += LANES)
                    all += load_some(numerator + i, std::min<long>(LANES, width - i));
                sums[block] = sum(all);
            }
            const Entry block(sums, blocks, uniform[row]);
            const long first = block.index * TOKENS;
            token[row] = first + Entry(numerator + first, std::min<long>(TOKENS, width - first), block.share).index;
            logp[row] = (own[token[row]] / temperature - top) - log_sum;
        });
    });
}
}
