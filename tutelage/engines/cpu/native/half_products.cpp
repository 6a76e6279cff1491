// Weights in bfloat16 as panels, and products of any number of lines with them: the bits of a line are those that a
// decoding step gives it.

#include "products.hpp"

namespace {

// Copies rows of numbers into one panel in bfloat16: pairs of 16 rows, with zeros after the last row and feature.
// The rows of the next panel, which follow in memory, are prefetched: sixteen rows at once are too many for the processor
// to do so by itself.
template <class Number>
void pack_panel(const Number *rows, long count, long in, Pair *to) {
    alignas(64) Pair pairs[LANES][TILE_PAIRS] = {};
    for (long k = 0; k < in; k += TILE_FEATURES, to += TILE_PAIRS * LANES) {
        const long some = std::min(TILE_FEATURES, in - k);
        for (long r = 0; r < count; r++) {
            Half *halves = reinterpret_cast<Half *>(pairs[r]);
            const Number *from = rows + r * in + k;
            for (long i = 0; i < TILE_FEATURES; i += LANES) __builtin_prefetch(from + LANES * in + i, 0, 2);
            if (some == TILE_FEATURES) {
                store(halves, load(from)), store(halves + LANES, load(from + LANES));
            } else {
                alignas(64) Number part[TILE_FEATURES] = {};
                std::copy_n(from, some, part);
                store(halves, load(part)), store(halves + LANES, load(part + LANES));
            }
        }
        for (long i = 0; i < TILE_PAIRS; i++)
            for (long r = 0; r < LANES; r++) to[i * LANES + r] = read(&pairs[r][i]);
    }
}

template <class Number>
void pack(const ThreadPool &pool, const Number *weight, long out, long in, Pair *panels, long step) {
    run_phases(pool, 1, [&](Worker &worker) {
        worker.share(blocks_of(out), 8 * worker.threads, [&](long first, long end) {
            for (long panel = first; panel < end; panel++)
                pack_panel(weight + panel * LANES * in, std::min<long>(LANES, out - panel * LANES), in,
                           panels + panel * step);
        });
    });
}

// Copies lines [n][in] into blocks.
void copy_blocks(Worker &worker, const Matrix &by, long lines, const Half *x, float *blocks) {
    worker.share(blocks_of(lines), 4 * worker.threads, [&](long first, long end) {
        for (long line = first * LANES; line < std::min(lines, end * LANES); line++)
            for (long k = 0; k < by.in; k += LANES) {
                float *block = blocks + line / LANES * block_step(by);
                const Half *from = x + line * by.in + k;
                if (k + LANES <= by.in) {
                    put_features(block, line % LANES, k, by.in, from);
                } else {
                    alignas(64) Half part[LANES] = {};
                    std::copy_n(from, by.in - k, part);
                    put_features(block, line % LANES, k, by.in, part);
                }
            }
    });
}

// Adds the bias to products with one or two panels, and stores them in `rows` rows of y [n][out].
template <class Number>
void put_products(const Matrix &by, long panel, long count, long rows, const PanelProducts &products, Number *to) {
    const auto columns = [&](long p) { return std::min<long>(LANES, by.out - (panel + p) * LANES); };
    const Bias first(by.bias, panel * LANES, columns(0));
    if (count == 1) {
        for (long r = 0; r < rows; r++) put(to + r * by.out, columns(0), products.at(r, 0) + first());
        return;
    }
    const Bias second(by.bias, (panel + 1) * LANES, columns(1));
    const long last = columns(1);
    for (long r = 0; r < rows; r++, to += by.out) {
        store(to, products.at(r, 0) + first());
        put(to + LANES, last, products.at(r, 1) + second());
    }
}

}  // namespace

extern "C" {

// Copies W [out][in] into panels in bfloat16 that begin `step` pairs of numbers apart. `in` is even.
void tutelage_pack_half(const ThreadPool *pool, const float *weight, int64_t out, int64_t in, Pair *panels,
                        int64_t step) {
    pack(*pool, weight, out, in, panels, step);
}

// The same for W in bfloat16.
void tutelage_copy_half(const ThreadPool *pool, const Half *weight, int64_t out, int64_t in, Pair *panels,
                        int64_t step) {
    pack(*pool, weight, out, in, panels, step);
}

// x [n][in] W^T + b, rounded into `y` [n][out] or as it is into `exact`, of which one is null. `blocks` has room for x in
// blocks of 16 lines, [ceil(n / 16)][in padded to 16][16] floats.
void tutelage_half_product(const ThreadPool *pool, const Matrix *by, int64_t lines, const Half *x, Half *y,
                           float *exact, float *blocks) {
    const long panels = blocks_of(by->out), at_once = panels_at_once(*by);
    const long chunks = (lines + TILED_LINES - 1) / TILED_LINES, groups = (panels + at_once - 1) / at_once;
    run_phases(*pool, 2, [&](Worker &worker) {
        copy_blocks(worker, *by, lines, x, blocks);
        worker.share(chunks * groups, chunks * product_parts(panels, worker.threads), [&](long first, long end) {
            for (long part = first; part < end; part++) {
                const long start = part / groups * TILED_LINES, panel = part % groups * at_once;
                const long count = std::min(at_once, panels - panel), some = std::min<long>(TILED_LINES, lines - start);
                const float *a = blocks + start / LANES * block_step(*by);
                for_blocks(*by, some, a, panel, count, [&](long line, long rows, const PanelProducts &products) {
                    const long at = (start + line) * by->out + panel * LANES;
                    if (exact) put_products(*by, panel, count, rows, products, exact + at);
                    else put_products(*by, panel, count, rows, products, y + at);
                });
            }
        });
    });
}
}
