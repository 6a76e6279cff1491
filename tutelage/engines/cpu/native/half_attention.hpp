// Attention of a packed sequence (see packed_sequence.hpp) whose queries, keys and values are in bfloat16, forwards and
// backwards. Scores, softmax and sums are float32. Both operands of each product are in bfloat16, in pairs along what is
// summed over: P and dS are rounded, and so are the results O, dQ, dK and dV (see packed_attention.hpp). rowsum(dO * O) is
// computed as rowsum(P * dO V^T), since O is rounded: so the sum of dS is 0.
//
//     S = Q K^T, dO V^T      pairs of features      Q, dO [queries][w / 2] as they are, K and V [w / 2][tokens]
//     P V, dS K              pairs of tokens        P, dS [queries][tokens / 2], K and V [tokens / 2][w]
//     P^T dO, dS^T Q         pairs of queries       P, dS [queries / 2][tokens], dO and Q [queries / 2][w]
#pragma once

#include "packed_sequence.hpp"
#include "tiles.hpp"

namespace {

// Pairs of features of keys or values x [M][K][w]: [w / 2][columns] per sequence and head, with zeros after its end.
void pair_features(Worker &worker, const PackedView &view, const Half *x, Pair *into) {
    const long pairs = view.packed.width / 2, step = view.packed.keys * pairs;
    view.for_keys(worker, [&](const Keys &own, long key) {
        const Pair *from = reinterpret_cast<const Pair *>(view.of_key(x, own.token, key));
        Pair *to = into + own.copy / 2;
        for (long i = 0; i < own.columns; i += LANES)
            for (long k = 0; k < pairs; k++)
                for (long j = i; j < i + LANES; j++) to[k * own.columns + j] = j < own.length ? read(from + j * step + k) : 0;
    });
}

// The pairs (first[i], second[i]) of `count` numbers; `second` may be null, for zeros.
INLINE void pair_rows(const Half *first, const Half *second, long count, Pair *into) {
    for (long i = 0; i < count; i++) into[i] = first[i] | (second ? static_cast<Pair>(second[i]) << 16 : 0);
}

// Pairs of tokens of keys or values x [M][K][w]: [columns / 2][w] per sequence and head, with zeros after its end.
void pair_tokens(Worker &worker, const PackedView &view, const Half *x, Pair *into) {
    const long width = view.packed.width, step = view.packed.keys * width;
    view.for_keys(worker, [&](const Keys &own, long key) {
        const Half *from = view.of_key(x, own.token, key);
        Pair *to = into + own.copy / 2;
        for (long t = 0; t < own.length; t += 2)
            pair_rows(from + t * step, t + 1 < own.length ? from + (t + 1) * step : nullptr, width, to + t / 2 * width);
        std::fill(to + (own.length + 1) / 2 * width, to + own.columns / 2 * width, 0);
    });
}

// A block of queries and its products. Rows of scores have room for floats, of which each may hold a pair instead.
struct HalfQueries : Queries {
    HalfQueries(const Queries &block) : Queries(block) {}

    // Pairs of queries of x [N][H][w] → [(count + 1) / 2][w]
    void pair_queries(const Half *x, Pair *into) const {
        for (long q = 0; q < count; q += 2)
            pair_rows(x + index(q), q + 1 < count ? x + index(q + 1) : nullptr, packed.width,
                      into + q / 2 * packed.width);
    }

    // x [N][H][w] times keys or values in pairs of features → [count][row]
    void times_keys(const Half *x, const Pair *pairs, float *into) const {
        const long depth = packed.width / 2;
        const MatrixView<Pair> a{reinterpret_cast<const Pair *>(x + index(0)), packed.heads * depth, 1};
        if (prefix.columns)
            multiply(count, prefix.columns, depth, a, {pairs + prefix.copy / 2, prefix.columns}, into, row, false);
        multiply(count, seen, depth, a, {pairs + own.copy / 2, own.columns}, into + prefix.columns, row,
                 false);
    }

    // Rows of x, at a distance of `row` pairs, times keys or values in pairs of tokens → [count][w]
    void weighted_sum(const Pair *x, const Pair *pairs, float *into) const {
        if (prefix.length)
            multiply(count, packed.width, prefix.columns / 2, MatrixView<Pair>{x, row, 1},
                     {pairs + prefix.copy / 2, packed.width}, into, packed.width, false);
        multiply(count, packed.width, (start + count + 1) / 2, MatrixView<Pair>{x + prefix.columns / 2, row, 1},
                 {pairs + own.copy / 2, packed.width}, into, packed.width, prefix.length > 0);
    }

    // Adds the transposed x, in pairs of queries at a distance of two rows, times `by` [(count + 1) / 2][w] to the
    // gradients of keys or values: of the own sequence, and of the prefix, which are overwritten unless `begun`.
    void add_transposed_product(const Pair *x, const Pair *by, float *to_own, float *to_prefix, bool begun) const {
        const long step = packed.keys * packed.width, depth = (count + 1) / 2;
        if (prefix.length)
            multiply(prefix.length, packed.width, depth, MatrixView<Pair>{x, 1, 2 * row}, {by, packed.width}, to_prefix,
                     step, begun);
        multiply(start + count, packed.width, depth, MatrixView<Pair>{x + prefix.columns, 1, 2 * row},
                 {by, packed.width}, view.of_key(to_own, own.token, key), step, true);
    }

    // factor(query) times x [count][w], rounded, into [N][H][w].
    template <class Factor>
    void put(const float *x, const Factor &factor, Half *into) const {
        for (long q = 0; q < count; q++)
            for (long i = 0; i < packed.width; i += LANES)
                store(into + index(q) + i, factor(q) * load(x + q * packed.width + i));
    }
};

// Queries [N][H][w], keys and values [M][K][w].
INLINE const Half *halves(const float *x) { return reinterpret_cast<const Half *>(x); }
INLINE Pair *pairs(float *x) { return reinterpret_cast<Pair *>(x); }

// The attention of a block, into out [N][H][w] and lse [N][H]. `keys` are in pairs of features, `values` in pairs of
// tokens.
void attend(const HalfQueries &block, const Pair *keys, const Pair *values, Half *out, float *lse,
            const Workspace &workspace) {
    block.times_keys(halves(block.packed.query), keys, workspace.scores);
    alignas(64) float inverse[BLOCK];
    for (long q = 0; q < block.count; q++) {
        const ScoreRow row = block.scores(workspace.scores, q);
        row.scale(block.packed.scale);
        const SoftmaxSum found = row.half_softmax();
        inverse[q] = 1.0f / found.sum;
        lse[block.lse_index(q)] = found.log_sum_exp();
    }
    block.weighted_sum(pairs(workspace.scores), values, workspace.tile);
    block.put(workspace.tile, [&](long q) { return inverse[q]; }, out);
}

// The tensors of a backward pass: its inputs, with keys and values in pairs of features and keys in pairs of tokens,
// and its results.
struct HalfGradients {
    const Half *grad;
    const float *lse;
    const Pair *keys, *values, *token_keys;
    Half *to_query;
    float *to_key, *to_value;
};

// P and scale dS of a query, in the place of its scores and of the gradients of its probabilities.
void differentiate_softmax(const HalfQueries &block, const HalfGradients &gradients, long query,
                           const Workspace &workspace) {
    const PackedSequence &packed = block.packed;
    const float lse = gradients.lse[block.lse_index(query)];
    const ScoreRow row = block.scores(workspace.scores, query);
    row.scale(packed.scale);
    float *gradient = workspace.score_gradients + query * block.row;
    const float *probability = workspace.scores + query * block.row;
    Floats products{};
    row.each([&](Floats x) { return exponential(x - lse); },
             [&](long column, Floats y) { products += y * load(gradient + column); });
    const float mean = sum(products);
    for (long i = 0; i < block.row; i += LANES)
        store(gradient + i, packed.scale * load(probability + i) * (load(gradient + i) - mean));
}

// The gradients of a block. Those of its own keys and values are added to the present ones.
void differentiate(const HalfQueries &block, const HalfGradients &gradients, const PrefixGradients &of_prefix,
                   const Workspace &workspace) {
    const long row = block.row;
    block.times_keys(halves(block.packed.query), gradients.keys, workspace.scores);
    block.times_keys(gradients.grad, gradients.values, workspace.score_gradients);
    // Rounds two rows at a time, in place. Then the rows of scores hold pairs of two queries, P in the first row and dS in
    // the second, and the rows of gradients dS.
    for (long q = 0; q < block.count; q += 2) {
        const bool both = q + 1 < block.count;
        for (long query = q; query <= q + both; query++) differentiate_softmax(block, gradients, query, workspace);
        float *p = workspace.scores + q * row, *s = workspace.score_gradients + q * row;
        for (long i = 0; i < row; i += LANES) {
            const Floats first = load(p + i), second = both ? load(p + row + i) : Floats{};
            const Floats to_first = load(s + i), to_second = both ? load(s + row + i) : Floats{};
            store_pairs(pairs(p) + i, first, second);
            store_pairs(pairs(p + row) + i, to_first, to_second);
            store(reinterpret_cast<Half *>(s) + i, to_first);
            store(reinterpret_cast<Half *>(s + row) + i, to_second);
        }
    }
    block.pair_queries(gradients.grad, pairs(workspace.out_gradients));
    block.pair_queries(halves(block.packed.query), pairs(workspace.queries));
    block.add_transposed_product(pairs(workspace.scores), pairs(workspace.out_gradients), gradients.to_value,
                                 of_prefix.values, of_prefix.begun);
    block.add_transposed_product(pairs(workspace.scores + row), pairs(workspace.queries), gradients.to_key,
                                 of_prefix.keys, of_prefix.begun);
    block.weighted_sum(pairs(workspace.score_gradients), gradients.token_keys, workspace.tile);
    block.put(workspace.tile, [](long) { return 1.0f; }, gradients.to_query);
}

}  // namespace
