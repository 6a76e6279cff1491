// Products of lines with the weights of a layer. Their input is stored in blocks of 16 lines, [blocks][in][16], in
// which one feature of 16 lines is contiguous.
#pragma once

#include <cmath>

#include "structs.hpp"
#include "kernel.hpp"
#include "half_products.hpp"
#include "norms.hpp"
#include "activations.hpp"
#include "threads.hpp"

namespace {

// Writes `count` consecutive features of line r, from `first` on, a multiple of 16, into a block of 16 lines.
INLINE void put_features(const Matrix &by, float *block, long r, long first, long count, const float *x) {
    if (by.half) return put_rounded_features(block, r, first, count, by.in, x);
    for (long i = 0; i < count; i++) block[(first + i) * LANES + r] = x[i];
}

// The same for the first `count` lines of a block, x [count][16].
INLINE void put_features_of_lines(const Matrix &by, float *block, long count, long first, long columns,
                                  const float (*x)[LANES]) {
    if (!by.half) {
        long r = 0;
        if (columns == LANES)
            for (; r + 8 <= count; r += 8)
                for (long i = 0; i < LANES; i += 8) transpose(x[r] + i, LANES, block + (first + i) * LANES + r, LANES);
        for (; r < count; r++) put_features(by, block, r, first, columns, x[r]);
        return;
    }
    alignas(64) Half halves[LANES][LANES] = {};
    for (long r = 0; r < count; r++) store(halves[r], load_some(x[r], columns));
    put_features_of_lines(block, count, first, by.in, halves[0], LANES);
}

// A product with one or two panels: [rows][16] each, at a distance of `row` floats between rows, `panel` between panels.
struct PanelProducts {
    const float *c;
    long row, panel;

    Floats at(long r, long p) const { return load(c + r * row + p * panel); }
};

// The number of panels that a product takes at once.
INLINE long panels_at_once(const Matrix &by) { return by.half && uses_tiles() ? 2 : 1; }

// Calls work(line, rows, A B) for blocks of lines A, given as `blocks`, and `count` consecutive panels B of `by`, one or
// two.
template <class Work>
INLINE void for_blocks(const Matrix &by, long lines, const float *blocks, long panel, long count, const Work &work) {
    const bool tiled = by.half && uses_tiles();
    alignas(64) float c[HAS_TILES ? TILED_LINES * TILED_ROW : 2 * LANES * LANES];
    const long at_once = tiled ? TILED_LINES : LANES;
    for (long line = 0; line < lines; line += at_once) {
        const long rows = std::min(at_once, lines - line);
        const float *a = blocks + line / LANES * block_step(by);
        if (tiled) {
            set_tile_products(by, rows, a, panel, count, c);
            work(line, rows, PanelProducts{c, TILED_ROW, LANES});
            continue;
        }
        for (long p = 0; p < count; p++) {
            const float *b = by.panel(panel + p);
            float *to = c + p * LANES * LANES;
            if (by.half) set_half_product(rows, a, reinterpret_cast<const Pair *>(b), by.in / 2, to);
            else set_product(rows, a, LANES, b, LANES, by.in, to);
        }
        work(line, rows, PanelProducts{c, LANES, LANES * LANES});
    }
}

// What a product in bfloat16 gives the next operation: rounded as it would be stored.
INLINE Floats result(const Matrix &by, Floats y) { return by.half ? rounded_floats(y) : y; }

// The input of a product: `x` is stored in blocks already, or as lines [n][features], which are normalised where `norm` is
// not null. `t` are the lines [n][rank] that follow the features of x where the product has an adapter. Each thread
// copies lines into blocks of its own once it has a part to do: two threads that wrote to one block would wait for each
// other's caches.
struct Input {
    const float *x;
    bool is_blocks;
    const float *norm;
    float epsilon;
    const float *t;

    const float *blocks(long lines, const Matrix &by, float *own) const {
        if (is_blocks) return x;
        for (long line = 0; line < lines; line += LANES)
            block(line, std::min(LANES, lines - line), by, own + line / LANES * block_step(by));
        return own;
    }

    // A block of `count` lines from line `start` on.
    void block(long start, long count, const Matrix &by, float *into) const {
        const long features = by.features();
        const float *rows = x + start * features;
        float scales[LANES];
        for (long r = 0; r < count; r++)
            scales[r] = norm ? root_mean_square(rows + r * features, features, epsilon) : 1.0f;
        for (long first = 0; first < features; first += LANES) {  // 16 by 16: no more cache lines than it holds
            const long columns = std::min(LANES, features - first);
            alignas(64) float part[LANES][LANES];
            for (long r = 0; r < count; r++) {
                const Floats from = load_some(rows + r * features + first, columns);
                store(part[r], norm ? from * scales[r] * load_some(norm + first, columns) : from);
            }
            put_features_of_lines(by, into, count, first, columns, part);
        }
        for (long first = 0; first < by.rank; first += LANES)
            for (long r = 0; r < count; r++)
                put_features(by, into, r, features + first, std::min(LANES, by.rank - first),
                             t + (start + r) * by.rank + first);
    }
};

// The number of parts of a product: about eight panels each, and equally many for each thread.
INLINE long product_parts(long panels, long threads) { return threads * std::max(4L, blocks_of(panels / threads) * 2); }

// 16 entries of a bias, or zeros where there is none.
struct Bias {
    alignas(64) float part[LANES] = {};

    Bias() = default;
    Bias(const float *bias, long column, long columns) {
        if (bias) std::copy_n(bias + column, columns, part);
    }
    Floats operator()() const { return load(part); }
};

// Calls done(line, column, columns, y [16]) for each group of up to 16 columns of y = x W^T + b.
template <class Done>
void product(Worker &worker, long lines, const Input &input, const Matrix &by, float *own, const Done &done) {
    const long panels = blocks_of(by.out), at_once = panels_at_once(by);
    const float *x = nullptr;
    worker.share(panels, product_parts(panels, worker.threads), [&](long first, long end) {
        if (!x) x = input.blocks(lines, by, own);
        for (long panel = first; panel < end; panel += at_once) {
            const long count = std::min(at_once, end - panel);
            for_blocks(by, lines, x, panel, count, [&](long line, long rows, const PanelProducts &products) {
                for (long p = 0; p < count; p++) {
                    const long column = (panel + p) * LANES, columns = std::min(LANES, by.out - column);
                    const Bias bias(by.bias, column, columns);
                    for (long r = 0; r < rows; r++) done(line + r, column, columns, products.at(r, p) + bias());
                }
            });
        }
    });
}

// t = A x [n][rank], where `by` has an adapter. It is a phase of its own.
inline void adapt(Worker &worker, long lines, const Input &input, const Matrix &by, float *own, float *t) {
    if (!by.rank) return;
    product(worker, lines, input, by.adapter(), own, [&](long line, long column, long columns, Floats y) {
        put(t + line * by.rank + column, columns, y);
    });
}

// The same into the blocks of lines that `x` is.
inline void adapt_blocks(Worker &worker, long lines, float *x, const Matrix &by) {
    if (!by.rank) return;
    const Input input{x, true, nullptr, 0, nullptr};
    product(worker, lines, input, by.adapter(), nullptr, [&](long line, long column, long columns, Floats y) {
        alignas(64) float part[LANES];
        store(part, y);
        float *block = x + line / LANES * block_step(by);
        put_features(by, block, line % LANES, by.features() + column, columns, part);
    });
}

// x += y W^T + b, where `input` is y [n][in] and x is [n][out]. `record` receives the sum.
inline void accumulate_product(Worker &worker, long lines, const Input &input, const Matrix &by, float *own, float *x,
                        const Record &record) {
    product(worker, lines, input, by, own, [&](long line, long column, long columns, Floats y) {
        float *to = x + line * by.out + column;
        alignas(64) float before[LANES] = {};
        std::copy_n(to, columns, before);
        y = result(by, y) + load(before);
        put(to, columns, y), record.put(line, column, columns, y);
    });
}

// silu(g) * u, into blocks of `next`. Panels of g and u alternate in `by`. `records` receives g and u.
inline void swiglu(Worker &worker, long lines, const Input &input, const Matrix &by, const Matrix &next, float *own,
            float *into, const Records &records) {
    const long inner = by.out / 2, panels = blocks_of(inner);
    const float *x = nullptr;
    worker.share(panels, product_parts(2 * panels, worker.threads), [&](long first, long end) {
        if (!x) x = input.blocks(lines, by, own);
        for (long panel = first; panel < end; panel++) {
            const long column = panel * LANES, columns = std::min(LANES, inner - column);
            const Bias gate_bias(by.bias, column, columns), up_bias(by.bias, inner + column, columns);
            for_blocks(by, lines, x, 2 * panel, 2, [&](long start, long rows, const PanelProducts &products) {
                for (long first = 0; first < rows; first += LANES) {
                    const long count = std::min(LANES, rows - first);
                    alignas(64) float y[LANES][LANES];
                    for (long r = 0; r < count; r++) {
                        const long line = start + first + r;
                        const Floats gate = result(by, products.at(first + r, 0) + gate_bias());
                        const Floats up = result(by, products.at(first + r, 1) + up_bias());
                        store(y[r], silu(gate) * up);
                        records.gate.put(line, column, columns, gate);
                        records.up.put(line, column, columns, up);
                    }
                    float *block = into + (start + first) / LANES * block_step(next);
                    put_features_of_lines(next, block, count, column, columns, y);
                }
            });
        }
    });
}

}  // namespace
