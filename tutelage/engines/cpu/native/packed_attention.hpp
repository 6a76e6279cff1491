// Attention of a packed sequence (see packed_sequence.hpp) in float32, forwards and backwards. With S the scaled scores
// of a whole row and lse their log-sum-exp,
//
//     P = exp(S - lse),  O = P V               dS = P * (dO V^T - rowsum(dO * O))
//     dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO
#pragma once

#include "packed_sequence.hpp"
#include "tiles.hpp"

namespace {

// Copies keys or values [M][K][w] as vectors of 16 tokens, [columns / 16][w][16] per sequence and head, with zeros after the
// sequence's end.
void transpose(Worker &worker, const PackedView &view, const float *x, float *into) {
    const PackedSequence &packed = view.packed;
    const long step = packed.keys * packed.width;
    view.for_keys(worker, [&](const Keys &own, long key) {
        const float *from = view.of_key(x, own.token, key);
        float *to = into + own.copy;
        for (long i = 0; i < own.columns; i += 8, from += 8 * step) {
            float *vector = to + i / LANES * LANES * packed.width + i % LANES;
            const long tokens = std::min(8L, own.length - i);
            for (long k = 0; k < packed.width; k += 8) {
                if (tokens == 8) ::transpose(from + k, step, vector + k * LANES, LANES);
                else
                    for (long n = k; n < k + 8; n++)
                        for (long j = 0; j < 8; j++) vector[n * LANES + j] = j < tokens ? from[j * step + n] : 0.0f;
            }
        }
    });
}

constexpr long STRIP = 12;  // queries that read keys of their own sequence up to the last one of them

// A block of queries and its products. Those with keys of the own sequence are computed strip by strip: of the rest of a row
// of scores, which no query of the strip attends to, nothing is read.
struct FloatQueries : Queries {
    FloatQueries(const Queries &block) : Queries(block) {}

    // Calls work(first query, number of queries) for all strips.
    template <class Work>
    void strips(const Work &work) const {
        for (long q = 0; q < count; q += STRIP) work(q, std::min(STRIP, count - q));
    }

    // The scores of a query that are read, of [count][row].
    ScoreRow scores(float *all, long query) const {
        ScoreRow scores = Queries::scores(all, query);
        scores.own_columns = round_up(start + std::min(count, (query / STRIP + 1) * STRIP), LANES);
        return scores;
    }

    void copy(const float *x, float factor, float *into) const {
        for (long q = 0; q < count; q++)
            for (long i = 0; i < packed.width; i += LANES)
                store(into + q * packed.width + i, factor * load(x + index(q) + i));
    }

    // x [count][w] times the transposed keys or values → [count][row]
    void times_keys(const float *x, const float *transposed, float *into) const {
        const long width = packed.width, next = LANES * width;
        if (prefix.columns)
            multiply(count, prefix.columns, width, MatrixView<float>{x, width, 1},
                     {transposed + prefix.copy, LANES, next}, into, row, false);
        strips([&](long q, long rows) {
            multiply(rows, round_up(start + q + rows, LANES), width, MatrixView<float>{x + q * width, width, 1},
                     {transposed + own.copy, LANES, next}, into + q * row + prefix.columns, row, false);
        });
    }

    // x [count][row] times keys or values [row][w] → [count][w]
    void weighted_sum(const float *x, const float *values, float *into) const {
        const long width = packed.width, step = packed.keys * width;
        if (prefix.length)
            multiply(count, width, prefix.length, MatrixView<float>{x, row, 1},
                     {view.of_key(values, prefix.token, key), step}, into, width, false);
        strips([&](long q, long rows) {
            multiply(rows, width, start + q + rows, MatrixView<float>{x + q * row + prefix.columns, row, 1},
                     {view.of_key(values, own.token, key), step}, into + q * width, width, prefix.length > 0);
        });
    }

    // Adds x [count][row]^T times `by` [count][w] to the gradients of keys or values: of the own sequence, and of the
    // prefix, which are overwritten unless `begun`.
    void add_transposed_product(const float *x, const float *by, float *to_own, float *to_prefix, bool begun) const {
        const long width = packed.width, step = packed.keys * width;
        if (prefix.length)
            multiply(prefix.length, width, count, MatrixView<float>{x, 1, row}, {by, width}, to_prefix, step, begun);
        x += prefix.columns;
        if (start)
            multiply(start, width, count, MatrixView<float>{x, 1, row}, {by, width},
                     view.of_key(to_own, own.token, key), step, true);
        strips([&](long q, long rows) {  // earlier queries do not attend to these keys
            multiply(rows, width, count - q, MatrixView<float>{x + q * row + start + q, 1, row}, {by + q * width, width},
                     view.of_key(to_own, own.token + start + q, key), step, true);
        });
    }
};

// The attention of a block, into out [N][H][w] and lse [N][H].
void attend(const FloatQueries &block, const float *transposed_keys, float *out, float *lse,
            const Workspace &workspace) {
    const PackedSequence &packed = block.packed;
    block.copy(packed.query, packed.scale, workspace.queries);
    block.times_keys(workspace.queries, transposed_keys, workspace.scores);
    alignas(64) float inverse[BLOCK];
    for (long q = 0; q < block.count; q++) {
        const SoftmaxSum found = block.scores(workspace.scores, q).softmax();
        inverse[q] = 1.0f / found.sum;
        lse[block.lse_index(q)] = found.log_sum_exp();
    }
    block.weighted_sum(workspace.scores, packed.value, workspace.tile);
    for (long q = 0; q < block.count; q++)
        for (long i = 0; i < packed.width; i += LANES)
            store(out + block.index(q) + i, inverse[q] * load(workspace.tile + q * packed.width + i));
}

// The tensors of a backward pass.
struct Gradients {
    const float *out, *lse, *grad;
    float *to_query, *to_key, *to_value;
};

// The gradients of a block. Those of its own keys and values are added to the present ones.
void differentiate(const FloatQueries &block, const float *transposed_keys, const float *transposed_values,
                   const Gradients &gradients, const PrefixGradients &of_prefix, const Workspace &workspace) {
    const PackedSequence &packed = block.packed;
    block.copy(packed.query, packed.scale, workspace.queries);
    block.copy(gradients.grad, 1.0f, workspace.out_gradients);
    block.times_keys(workspace.queries, transposed_keys, workspace.scores);
    block.times_keys(workspace.out_gradients, transposed_values, workspace.score_gradients);
    for (long q = 0; q < block.count; q++) {
        const float lse = gradients.lse[block.lse_index(q)];
        Floats products{};
        for (long i = 0; i < packed.width; i += LANES)
            products += load(workspace.out_gradients + q * packed.width + i) * load(gradients.out + block.index(q) + i);
        const float mean = sum(products);
        block.scores(workspace.scores, q).each(
            [&](Floats x) { return exponential(x - lse); },
            [&](long column, Floats probability) {
                float *gradient = workspace.score_gradients + q * block.row + column;
                store(gradient, probability * (load(gradient) - mean));
            });
    }
    block.add_transposed_product(workspace.scores, workspace.out_gradients, gradients.to_value, of_prefix.values,
                                 of_prefix.begun);
    block.add_transposed_product(workspace.score_gradients, workspace.queries, gradients.to_key, of_prefix.keys,
                                 of_prefix.begun);
    block.weighted_sum(workspace.score_gradients, packed.key, workspace.tile);
    for (long q = 0; q < block.count; q++)
        for (long i = 0; i < packed.width; i += LANES)
            store(gradients.to_query + block.index(q) + i, packed.scale * load(workspace.tile + q * packed.width + i));
}

}  // namespace
