// Attention of a packed sequence (see ../../packing.py), forwards and backwards. Every token attends to the whole
// shared prefix that its sequence continues and, causally, to its own sequence. With S the scaled scores of a whole row
// and lse their log-sum-exp,
//
//     P = exp(S - lse),  O = P V               dS = P * (dO V^T - rowsum(dO * O))
//     dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO
//
// The work is divided by sequences and heads of keys, so that one thread alone writes the gradients of a sequence's own
// keys. The gradients that suffixes contribute to the keys of their prefix go to a few accumulators. One thread adds
// all suffixes of an accumulator in their order, and the accumulators are added up at the end: no result depends on the
// order in which threads finish.
#pragma once

#include <cmath>

#include "structs.hpp"
#include "kernel.hpp"
#include "threads.hpp"

namespace {

constexpr int TALL = std::min(6, ROWS), WIDE = PARTS == 1 ? 4 : 1;  // rows and vectors whose sums stay in registers
constexpr long BLOCK = 48;                                          // queries at once

// A matrix A[r][k] = x[r * row + k * step].
struct MatrixView {
    const float *x;
    long row, step;
};

template <int R, int V>
INLINE void tile(MatrixView a, const float *b, long b_step, long depth, float *c, long c_row, bool accumulate) {
    Floats sums[R][V];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) sums[r][v] = accumulate ? load(c + r * c_row + v * LANES) : Floats{};
    for (long k = 0; k < depth; k++) {
        Floats columns[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) columns[v] = in_registers(load(b + v * LANES));
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const Floats x = a.x[r * a.row];
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) sums[r][v] += x * columns[v];
        }
        a.x += a.step, b += b_step;
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(c + r * c_row + v * LANES, sums[r][v]);
}

template <int V, int R = TALL>
INLINE void of_height(int rows, MatrixView a, const float *b, long b_step, long depth, float *c, long c_row,
                      bool accumulate) {
    if (rows == R) return tile<R, V>(a, b, b_step, depth, c, c_row, accumulate);
    if constexpr (R > 1) of_height<V, R - 1>(rows, a, b, b_step, depth, c, c_row, accumulate);
}

template <int V>
void strip(long rows, MatrixView a, const float *b, long b_step, long depth, float *c, long c_row, bool accumulate) {
    for (long r = 0; r < rows; r += TALL, a.x += TALL * a.row, c += TALL * c_row)
        of_height<V>(static_cast<int>(std::min<long>(TALL, rows - r)), a, b, b_step, depth, c, c_row, accumulate);
}

// C [rows][columns] = A B, or += where `accumulate`. The columns are a multiple of 16.
template <int V = WIDE>
void multiply(long rows, long columns, long depth, MatrixView a, const float *b, long b_step, float *c, long c_row,
              bool accumulate) {
    for (; columns >= V * LANES; columns -= V * LANES, b += V * LANES, c += V * LANES)
        strip<V>(rows, a, b, b_step, depth, c, c_row, accumulate);
    if constexpr (V > 1)
        if (columns) multiply<V - 1>(rows, columns, depth, a, b, b_step, c, c_row, accumulate);
}

// One sequence as keys: it begins at `token` of the packed sequence, and its transposed copy [w][columns] at
// `transposed`.
struct Keys {
    long token, length, columns, transposed;
};

// A packed sequence, and where its parts are.
struct PackedView {
    const PackedSequence &packed;

    Keys keys(long sequence, long key) const {
        const long columns = round_up(packed.length[sequence], LANES);
        return {packed.first[sequence], packed.length[sequence], columns,
                (packed.columns[sequence] * packed.keys + key * columns) * packed.width};
    }
    const float *of_key(const float *x, long token, long key) const {
        return x + (token * packed.keys + key) * packed.width;
    }
    float *of_key(float *x, long token, long key) const { return x + (token * packed.keys + key) * packed.width; }
    void add(const float *x, float *to, long token, long key) const {
        to = of_key(to, token, key);
        for (long i = 0; i < packed.width; i += LANES) store(to + i, load(to + i) + load(x + i));
    }
    bool has_prefix(long sequence) const { return packed.prefix[sequence] != sequence; }

    // Transposes keys or values [N][K][w] into [w][columns] per sequence and head, with zeros after the sequence's end.
    void transpose(Worker &worker, const float *x, float *into) const {
        worker.share(packed.sequences * packed.keys, 8 * worker.threads, [&](long first, long end) {
            for (long part = first; part < end; part++) {
                const Keys own = keys(part / packed.keys, part % packed.keys);
                const float *from = of_key(x, own.token, part % packed.keys);
                float *to = into + own.transposed;
                for (long i = 0; i < own.columns; i += LANES)
                    for (long k = 0; k < packed.width; k++)
                        for (long j = i; j < i + LANES; j++)
                            to[k * own.columns + j] = j < own.length ? from[j * packed.keys * packed.width + k] : 0.0f;
            }
        });
    }
};

// The workspace of one thread.
struct Workspace {
    float *queries, *out_gradients, *tile, *scores, *score_gradients;  // [BLOCK][w] each, then [BLOCK][longest]

    Workspace(const PackedSequence &packed, float *floats)
        : queries(floats),
          out_gradients(queries + BLOCK * packed.width),
          tile(out_gradients + BLOCK * packed.width),
          scores(tile + BLOCK * packed.width),
          score_gradients(scores + BLOCK * packed.longest) {}

    static long floats(const PackedSequence &packed) { return BLOCK * (3 * packed.width + 2 * packed.longest); }
};

// Up to BLOCK queries of one head, from `start` of a sequence on, and the keys that they attend to: the keys of the
// prefix in the first columns of a row of scores, the keys of their own sequence after them.
struct Queries {
    const PackedView &view;
    const PackedSequence &packed;
    long key, head, start, count;
    Keys prefix, own;
    long seen, row;  // own columns that are read, and all columns of a row of scores

    Queries(const PackedView &view, long sequence, long key, long head, long start)
        : view(view), packed(view.packed), key(key), head(head), start(start) {
        own = view.keys(sequence, key);
        prefix = view.has_prefix(sequence) ? view.keys(packed.prefix[sequence], key) : Keys{0, 0, 0, 0};
        count = std::min(BLOCK, own.length - start);
        seen = round_up(start + count, LANES), row = prefix.columns + seen;
    }

    long lse_index(long query) const { return (own.token + start + query) * packed.heads + head; }  // of [N][H]
    long index(long query) const { return lse_index(query) * packed.width; }                            // of [N][H][w]

    void copy(const float *x, float factor, float *into) const {
        for (long q = 0; q < count; q++)
            for (long i = 0; i < packed.width; i++) into[q * packed.width + i] = factor * x[index(q) + i];
    }

    // x [count][w] times the transposed keys or values → [count][row]
    void times_keys(const float *x, const float *transposed, float *into) const {
        const MatrixView a{x, packed.width, 1};
        if (prefix.columns)
            multiply(count, prefix.columns, packed.width, a, transposed + prefix.transposed, prefix.columns, into, row,
                     false);
        multiply(count, seen, packed.width, a, transposed + own.transposed, own.columns, into + prefix.columns, row,
                 false);
    }

    // x [count][row] times keys or values [row][w] → [count][w]
    void weighted_sum(const float *x, const float *values, float *into) const {
        const long step = packed.keys * packed.width;
        if (prefix.length)
            multiply(count, packed.width, prefix.length, {x, row, 1}, view.of_key(values, prefix.token, key), step,
                     into, packed.width, false);
        multiply(count, packed.width, start + count, {x + prefix.columns, row, 1}, view.of_key(values, own.token, key),
                 step, into, packed.width, prefix.length > 0);
    }

    // Adds x [count][row]^T times `by` [count][w] to the gradients of keys or values: of the own sequence, and of the
    // prefix, which are overwritten unless `begun`.
    void add_transposed_product(const float *x, const float *by, float *to_own, float *to_prefix, bool begun) const {
        const long step = packed.keys * packed.width;
        if (prefix.length)
            multiply(prefix.length, packed.width, count, {x, 1, row}, by, packed.width, to_prefix, step, begun);
        multiply(start + count, packed.width, count, {x + prefix.columns, 1, row}, by, packed.width,
                 view.of_key(to_own, own.token, key), step, true);
    }

    // Replaces the scores of a query by change(x [16]), and the padding by 0.
    template <class Change>
    void each(float *scores, long query, const Change &change) const {
        float *x = scores + query * row;
        change_some(x, prefix.length, prefix.columns, change);
        change_some(x + prefix.columns, start + query + 1, seen, change);
    }

    template <class Change>
    static void change_some(float *x, long valid, long columns, const Change &change) {
        long i = 0;
        for (; i + LANES <= valid; i += LANES) store(x + i, change(load(x + i)));
        if (i < valid) {
            alignas(64) float part[LANES];
            store(part, change(load(x + i)));
            for (long j = 0; j < LANES; j++) x[i + j] = i + j < valid ? part[j] : 0.0f;
            i += LANES;
        }
        for (; i < columns; i += LANES) store(x + i, Floats{});
    }

    float largest(const float *scores, long query) const {
        const float *x = scores + query * row;
        const Floats most = larger(x, prefix.length, Floats(x[prefix.columns]));
        return ::largest(larger(x + prefix.columns, start + query + 1, most));
    }
};

// Calls work(queries) for all blocks of all heads that share the head of keys `key`.
template <class Work>
void for_queries(const PackedView &view, long sequence, long key, const Work &work) {
    const PackedSequence &packed = view.packed;
    const long shared = packed.heads / packed.keys;
    for (long head = key * shared; head < (key + 1) * shared; head++)
        for (long start = 0; start < packed.length[sequence]; start += BLOCK)
            work(Queries(view, sequence, key, head, start));
}

// The attention of a block, into out [N][H][w] and lse [N][H].
void attend(const Queries &block, const float *transposed_keys, float *out, float *lse, const Workspace &workspace) {
    const PackedSequence &packed = block.packed;
    block.copy(packed.query, packed.scale, workspace.queries);
    block.times_keys(workspace.queries, transposed_keys, workspace.scores);
    alignas(64) float inverse[BLOCK];
    for (long q = 0; q < block.count; q++) {
        const float most = block.largest(workspace.scores, q);
        block.each(workspace.scores, q, [&](Floats x) { return exponential(x - most); });
        Floats sums{};
        for (long i = 0; i < block.row; i += LANES) sums += load(workspace.scores + q * block.row + i);
        const float total = sum(sums);
        inverse[q] = 1.0f / total;
        lse[block.lse_index(q)] = most + std::log(total);
    }
    block.weighted_sum(workspace.scores, packed.value, workspace.tile);
    for (long q = 0; q < block.count; q++)
        for (long i = 0; i < packed.width; i++)
            out[block.index(q) + i] = inverse[q] * workspace.tile[q * packed.width + i];
}

// The tensors of a backward pass.
struct Gradients {
    const float *out, *lse, *grad;
    float *to_query, *to_key, *to_value;
};

// An accumulator: gradients of the keys and values of a prefix, which are defined once `begun`.
struct PrefixGradients {
    float *keys, *values;
    bool begun;
};

// The gradients of a block. Gradients of its own keys and values are added to the present ones.
void differentiate(const Queries &block, const float *transposed_keys, const float *transposed_values,
                   const Gradients &gradients, PrefixGradients &prefix_gradients, const Workspace &workspace) {
    const PackedSequence &packed = block.packed;
    block.copy(packed.query, packed.scale, workspace.queries);
    block.copy(gradients.grad, 1.0f, workspace.out_gradients);
    block.times_keys(workspace.queries, transposed_keys, workspace.scores);
    block.times_keys(workspace.out_gradients, transposed_values, workspace.score_gradients);
    for (long q = 0; q < block.count; q++) {
        const float lse = gradients.lse[block.lse_index(q)];
        block.each(workspace.scores, q, [&](Floats x) { return exponential(x - lse); });
        Floats products{};
        for (long i = 0; i < packed.width; i += LANES)
            products += load(workspace.out_gradients + q * packed.width + i) * load(gradients.out + block.index(q) + i);
        const float mean = sum(products);
        float *gradient = workspace.score_gradients + q * block.row, *probability = workspace.scores + q * block.row;
        for (long i = 0; i < block.row; i += LANES)
            store(gradient + i, load(probability + i) * (load(gradient + i) - mean));
    }
    block.add_transposed_product(workspace.scores, workspace.out_gradients, gradients.to_value,
                                 prefix_gradients.values, prefix_gradients.begun);
    block.add_transposed_product(workspace.score_gradients, workspace.queries, gradients.to_key,
                                 prefix_gradients.keys, prefix_gradients.begun);
    prefix_gradients.begun = true;
    block.weighted_sum(workspace.score_gradients, packed.key, workspace.tile);
    for (long q = 0; q < block.count; q++)
        for (long i = 0; i < packed.width; i++)
            gradients.to_query[block.index(q) + i] = packed.scale * workspace.tile[q * packed.width + i];
}

}  // namespace
