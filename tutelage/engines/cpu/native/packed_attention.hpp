// Attention of a packed sequence (see packed_sequence.hpp) in float32, forwards and backwards. With S the scaled scores
// of a whole row and lse their log-sum-exp,
//
//     P = exp(S - lse),  O = P V               dS = P * (dO V^T - rowsum(dO * O))
//     dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO
#pragma once

#include "packed_sequence.hpp"
#include "tiles.hpp"

namespace {

// Copies keys or values [M][K][w], transposed to [w][columns] per sequence and head, with zeros after the sequence's end.
void transpose(Worker &worker, const PackedView &view, const float *x, float *into) {
    const PackedSequence &packed = view.packed;
    view.for_keys(worker, [&](const Keys &own, long key) {
        const float *from = view.of_key(x, own.token, key);
        float *to = into + own.copy;
        for (long i = 0; i < own.columns; i += LANES)
            for (long k = 0; k < packed.width; k++)
                for (long j = i; j < i + LANES; j++)
                    to[k * own.columns + j] = j < own.length ? from[j * packed.keys * packed.width + k] : 0.0f;
    });
}

// A block of queries and its products.
struct FloatQueries : Queries {
    FloatQueries(const Queries &block) : Queries(block) {}

    void copy(const float *x, float factor, float *into) const {
        for (long q = 0; q < count; q++)
            for (long i = 0; i < packed.width; i++) into[q * packed.width + i] = factor * x[index(q) + i];
    }

    // x [count][w] times the transposed keys or values → [count][row]
    void times_keys(const float *x, const float *transposed, float *into) const {
        const MatrixView<float> a{x, packed.width, 1};
        if (prefix.columns)
            multiply(count, prefix.columns, packed.width, a, {transposed + prefix.copy, prefix.columns}, into, row,
                     false);
        multiply(count, seen, packed.width, a, {transposed + own.copy, own.columns}, into + prefix.columns, row,
                 false);
    }

    // x [count][row] times keys or values [row][w] → [count][w]
    void weighted_sum(const float *x, const float *values, float *into) const {
        const long step = packed.keys * packed.width;
        if (prefix.length)
            multiply(count, packed.width, prefix.length, MatrixView<float>{x, row, 1},
                     {view.of_key(values, prefix.token, key), step}, into, packed.width, false);
        multiply(count, packed.width, start + count, MatrixView<float>{x + prefix.columns, row, 1},
                 {view.of_key(values, own.token, key), step}, into, packed.width, prefix.length > 0);
    }

    // Adds x [count][row]^T times `by` [count][w] to the gradients of keys or values: of the own sequence, and of the
    // prefix, which are overwritten unless `begun`.
    void add_transposed_product(const float *x, const float *by, float *to_own, float *to_prefix, bool begun) const {
        const long step = packed.keys * packed.width;
        if (prefix.length)
            multiply(prefix.length, packed.width, count, MatrixView<float>{x, 1, row}, {by, packed.width}, to_prefix,
                     step, begun);
        multiply(start + count, packed.width, count, MatrixView<float>{x + prefix.columns, 1, row}, {by, packed.width},
                 view.of_key(to_own, own.token, key), step, true);
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
        for (long i = 0; i < packed.width; i++)
            out[block.index(q) + i] = inverse[q] * workspace.tile[q * packed.width + i];
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
        block.scores(workspace.scores, q).each([&](Floats x) { return exponential(x - lse); });
        Floats products{};
        for (long i = 0; i < packed.width; i += LANES)
            products += load(workspace.out_gradients + q * packed.width + i) * load(gradients.out + block.index(q) + i);
        const float mean = sum(products);
        float *gradient = workspace.score_gradients + q * block.row, *probability = workspace.scores + q * block.row;
        for (long i = 0; i < block.row; i += LANES)
            store(gradient + i, load(probability + i) * (load(gradient + i) - mean));
    }
    block.add_transposed_product(workspace.scores, workspace.out_gradients, gradients.to_value, of_prefix.values,
                                 of_prefix.begun);
    block.add_transposed_product(workspace.score_gradients, workspace.queries, gradients.to_key, of_prefix.keys,
                                 of_prefix.begun);
    block.weighted_sum(workspace.score_gradients, packed.key, workspace.tile);
    for (long q = 0; q < block.count; q++)
        for (long i = 0; i < packed.width; i++)
            gradients.to_query[block.index(q) + i] = packed.scale * workspace.tile[q * packed.width + i];
}

}  // namespace
