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

// Copies the lines of x from `start` on, up to 16, into their block, and zeros after their last feature.
INLINE void copy_block(const Matrix &by, long start, long count, const Half *x, float *blocks) {
    const long features = by.features();
    float *block = blocks + start / LANES * block_step(by);
    x += start * features;
    for (long k = 0; k < features; k += LANES) {
        if (count == LANES && k + LANES <= features) {
            put_features_of_lines(block, count, k, features, x + k, features);
            continue;
        }
        alignas(64) Half part[LANES][LANES] = {};
        for (long r = 0; r < count; r++) std::copy_n(x + r * features + k, std::min(LANES, features - k), part[r]);
        put_features_of_lines(block, count, k, features, part[0], LANES);
    }
}

// Copies lines [n][features] into blocks. With an adapter t = A x [n][rank] follows them there, rounded, and is stored.
void copy_blocks(Worker &worker, const Matrix &by, long lines, const Half *x, float *blocks, Half *t) {
    const Matrix a = by.adapter();
    const long panels = blocks_of(by.rank), at_once = panels_at_once(by), some = 2 * LANES;
    worker.share((lines + some - 1) / some, 4 * worker.threads, [&](long first, long end) {
        for (long start = first * some; start < std::min(lines, end * some); start += some) {
            const long count = std::min(some, lines - start);
            for (long line = start; line < start + count; line += LANES)
                copy_block(by, line, std::min(LANES, start + count - line), x, blocks);
            for (long panel = 0; panel < panels; panel += at_once) {
                const float *own = blocks + start / LANES * block_step(by);
                const long together = std::min(at_once, panels - panel);
                for_blocks(a, count, own, panel, together, [&](long line, long rows, const PanelProducts &products) {
                    for (long r = 0; r < rows; r++)
                        for (long p = 0; p < together; p++) {
                            const long column = (panel + p) * LANES, at = start + line + r;
                            alignas(64) Half part[LANES];
                            store(part, products.at(r, p));
                            float *block = blocks + at / LANES * block_step(by);
                            put_features(block, at % LANES, by.features() + column, by.in, part);
                            std::copy_n(part, std::min(LANES, by.rank - column), t + at * by.rank + column);
                        }
                });
            }
        }
    });
}

// Sixteen columns of a product: the first, and how many there are.
struct Columns {
    long first, count;

    Columns(const Matrix &by, long panel) {
        const long half = by.out / 2, out = by.alternating ? half : by.out;
        const long within = (by.alternating ? panel / 2 : panel) * LANES;
        first = by.alternating && panel % 2 ? half + within : within;
        count = std::min<long>(LANES, out - within);
    }
};

// Adds the bias to products with one or two panels, and stores them in `rows` rows of y [n][out].
template <class Number>
void put_products(const Matrix &by, long panel, long count, long rows, const PanelProducts &products, Number *to) {
    for (long p = 0; p < count; p++) {
        const Columns columns(by, panel + p);
        const Bias bias(by.bias, columns.first, columns.count);
        Number *from = to + columns.first;
        if (columns.count == LANES)
            for (long r = 0; r < rows; r++) store(from + r * by.out, products.at(r, p) + bias());
        else
            for (long r = 0; r < rows; r++) put(from + r * by.out, columns.count, products.at(r, p) + bias());
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

// x [n][features] W^T + b, rounded into `y` [n][out] or as it is into `exact`, of which one is null. With an adapter
// t = A x [n][rank] is stored too, rounded. `blocks` has room for x and t in blocks of 16 lines,
// [ceil(n / 16)][in padded to 16][16] floats.
void tutelage_half_product(const ThreadPool *pool, const Matrix *by, int64_t lines, const Half *x, Half *y,
                           float *exact, Half *t, float *blocks) {
    const long panels = by->count(), at_once = panels_at_once(*by);
    const long chunks = (lines + TILED_LINES - 1) / TILED_LINES, groups = (panels + at_once - 1) / at_once;
    run_phases(*pool, 2, [&](Worker &worker) {
        copy_blocks(worker, *by, lines, x, blocks, t);
        worker.share(chunks * groups, chunks * product_parts(panels, worker.threads), [&](long first, long end) {
            for (long part = first; part < end; part++) {
                const long start = part / groups * TILED_LINES, panel = part % groups * at_once;
                const long count = std::min(at_once, panels - panel), some = std::min<long>(TILED_LINES, lines - start);
                const float *a = blocks + start / LANES * block_step(*by);
                for_blocks(*by, some, a, panel, count, [&](long line, long rows, const PanelProducts &products) {
                    const long at = (start + line) * by->out;
                    if (exact) put_products(*by, panel, count, rows, products, exact + at);
                    else put_products(*by, panel, count, rows, products, y + at);
                });
            }
        });
    });
}
}
