// Products of lines with the weights of a layer. Their input is stored in blocks of 16 lines, [blocks][in][16], in
// which one feature of 16 lines is contiguous.
#pragma once

#include <cmath>

#include "structs.hpp"
#include "kernel.hpp"
#include "half_products.hpp"
#include "activations.hpp"
#include "threads.hpp"

namespace {

INLINE float root_mean_square(const float *x, long size, float epsilon) {
    Floats squares{};
    long i = 0;
    for (; i + LANES <= size; i += LANES) squares += load(x + i) * load(x + i);
    float rest = 0;
    for (; i < size; i++) rest += x[i] * x[i];
    return 1.0f / std::sqrt((sum(squares) + rest) / size + epsilon);
}

// Writes `count` consecutive features of line r, from `first` on, into a block of 16 lines.
INLINE void put_features(bool half, float *block, long r, long first, long count, const float *x) {
    if (half) return put_pairs(block, r, first, count, x);
    for (long i = 0; i < count; i++) block[(first + i) * LANES + r] = x[i];
}

// C [rows][16] = A B, where A is a block of lines, of which the first is `line`, and B a panel of `by`.
INLINE void set_panel_product(const Matrix &by, long rows, const float *blocks, long line, long panel, float *c) {
    const float *a = blocks + line * by.in, *b = by.panel(panel);
    if (by.half) return set_half_product(rows, a, reinterpret_cast<const Pair *>(b), by.in / 2, c);
    set_product(rows, a, LANES, b, LANES, by.in, c);
}

// The input of a product: `x` is stored in blocks already, or as lines [n][in], which are normalised where `norm` is
// not null. Each thread copies lines into blocks of its own once it has a part to do: two threads that wrote to one
// block would wait for each other's caches.
struct Input {
    const float *x;
    bool is_blocks;
    const float *norm;
    float epsilon;

    const float *blocks(long lines, const Matrix &by, float *own) const {
        if (is_blocks) return x;
        for (long line = 0; line < lines; line += LANES)
            block(x + line * by.in, std::min(LANES, lines - line), by, own + line * by.in);
        return own;
    }

    void block(const float *rows, long count, const Matrix &by, float *into) const {
        const long features = by.in;
        float scales[LANES];
        for (long r = 0; r < count; r++)
            scales[r] = norm ? root_mean_square(rows + r * features, features, epsilon) : 1.0f;
        for (long first = 0; first < features; first += LANES) {  // 16 by 16: no more cache lines than it holds
            const long columns = std::min(LANES, features - first);
            for (long r = 0; r < count; r++) {
                alignas(64) float part[LANES];
                const float *from = rows + r * features + first;
                for (long i = 0; i < columns; i++) part[i] = norm ? from[i] * scales[r] * norm[first + i] : from[i];
                put_features(by.half, into, r, first, columns, part);
            }
        }
    }
};

// The number of parts of a product: about eight panels each, and equally many for each thread.
INLINE long parts_of(long panels, long threads) { return threads * std::max(4L, blocks_of(panels / threads) * 2); }

// 16 entries of a bias, or zeros where there is none.
struct Bias {
    alignas(64) float part[LANES] = {};

    Bias(const float *bias, long column, long columns) {
        if (bias) std::copy_n(bias + column, columns, part);
    }
    Floats operator()() const { return load(part); }
};

// Calls done(line, column, columns, y [16]) for each group of up to 16 columns of y = x W^T + b.
template <class Done>
void product(Worker &worker, long lines, const Input &input, const Matrix &by, float *own, const Done &done) {
    const long panels = blocks_of(by.out);
    const float *x = nullptr;
    worker.share(panels, parts_of(panels, worker.threads), [&](long first, long end) {
        if (!x) x = input.blocks(lines, by, own);
        alignas(64) float tile[LANES * LANES];
        for (long panel = first; panel < end; panel++) {
            const long column = panel * LANES, columns = std::min(LANES, by.out - column);
            const Bias bias(by.bias, column, columns);
            for (long line = 0; line < lines; line += LANES) {
                const long rows = std::min(LANES, lines - line);
                set_panel_product(by, rows, x, line, panel, tile);
                for (long r = 0; r < rows; r++) done(line + r, column, columns, load(tile + r * LANES) + bias());
            }
        }
    });
}

// x += y W^T + b, where `input` is y [n][in] and x is [n][out]. `record` receives the sum.
void accumulate_product(Worker &worker, long lines, const Input &input, const Matrix &by, float *own, float *x,
                        const Record &record) {
    product(worker, lines, input, by, own, [&](long line, long column, long columns, Floats y) {
        float *to = x + line * by.out + column;
        alignas(64) float before[LANES] = {};
        std::copy_n(to, columns, before);
        y += load(before);
        put(to, columns, y), record.put(line, column, columns, y);
    });
}

// silu(g) * u, into blocks. Panels of g and u alternate in `by`. `records` receives g and u.
void swiglu(Worker &worker, long lines, const Input &input, const Matrix &by, float *own, float *into,
            const Records &records) {
    const long inner = by.out / 2, panels = blocks_of(inner);
    const float *x = nullptr;
    worker.share(panels, parts_of(2 * panels, worker.threads), [&](long first, long end) {
        if (!x) x = input.blocks(lines, by, own);
        alignas(64) float gates[LANES * LANES], ups[LANES * LANES];
        for (long panel = first; panel < end; panel++) {
            const long column = panel * LANES, columns = std::min(LANES, inner - column);
            const Bias gate_bias(by.bias, column, columns), up_bias(by.bias, inner + column, columns);
            for (long line = 0; line < lines; line += LANES) {
                const long rows = std::min(LANES, lines - line);
                set_panel_product(by, rows, x, line, 2 * panel, gates);
                set_panel_product(by, rows, x, line, 2 * panel + 1, ups);
                for (long r = 0; r < rows; r++) {
                    const Floats gate = load(gates + r * LANES) + gate_bias();
                    const Floats up = load(ups + r * LANES) + up_bias();
                    alignas(64) float y[LANES];
                    store(y, silu(gate) * up);
                    put_features(by.half, into + line * inner, r, column, columns, y);
                    records.gate.put(line + r, column, columns, gate);
                    records.up.put(line + r, column, columns, up);
                }
            }
        }
    });
}

}  // namespace
